// node tests/look.js CHROMIUM FOLDER PICTURES PAGE[,LAYER,HEAD,FILE]..: opens pages of build/look in Chromium, without any library, and uses
// them as a reader would: points at tokens, moves with the keyboard, changes layers, colours and widths. FILE: what tests/look.c says of a
// head's weights. FOLDER: for the browser. PICTURES: a folder for screenshots, or -. The last line is N passed, N failed.
'use strict';
const {spawn} = require('child_process'), fs = require('fs'), path = require('path');
const [chromium, folder, pictures, ...pages] = process.argv.slice(2);
const first = pages.length && pages[0].split(',')[0];
let page = '';
let passed = 0, failed = 0;
const is = (label, good, seen) => {
  if (good) passed++;
  else failed++, console.log('FAIL ' + path.basename(page) + ': ' + label + (seen === undefined ? '' : ': ' + seen));
};
const wait = ms => new Promise(done => setTimeout(done, ms));

const browser = spawn(chromium, ['--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', '--remote-debugging-pipe',
  '--no-first-run', '--disable-extensions', '--user-data-dir=' + path.join(folder, 'profile'), 'about:blank'],
  {stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe']});
const end = status => { browser.kill('SIGKILL'); console.log(passed + ' passed, ' + failed + ' failed'); process.exit(status); };
browser.on('error', e => { console.log('FAIL ' + e.message); failed++; end(1); });
setTimeout(() => { console.log('FAIL the browser has not answered in 150 s'); failed++; end(1); }, 150000).unref();

// The protocol: JSON with a NUL behind it, on two pipes
let number = 0, rest = '', session;
const open = new Map(), events = [];
browser.stdio[4].on('data', data => {
  const all = (rest + data).split('\0');
  rest = all.pop();
  for (const one of all) {
    const m = JSON.parse(one), done = open.get(m.id);
    if (!done) { events.push(m); continue; }
    open.delete(m.id);
    m.error ? done.no(new Error(m.error.message)) : done.yes(m.result);
  }
});
const send = (method, params, plain) => new Promise((yes, no) => {
  open.set(++number, {yes, no});
  browser.stdio[3].write(JSON.stringify({id: number, method, params: params || {}, sessionId: plain ? undefined : session}) + '\0');
});
const run = async text => {
  const r = await send('Runtime.evaluate', {expression: text, returnByValue: true, awaitPromise: true});
  if (r.exceptionDetails) throw new Error(text + ': ' + r.exceptionDetails.exception.description);
  return r.result.value;
};
const some = name => events.filter(e => e.method === name);
const load = async () => {
  const before = some('Page.loadEventFired').length;
  await send('Page.navigate', {url: 'file://' + path.resolve(page)});
  while (some('Page.loadEventFired').length === before) await wait(5);
  return run('performance.getEntriesByType("navigation")[0].loadEventEnd');
};
const key = async (name, code) => {
  for (const type of ['keyDown', 'keyUp']) await send('Input.dispatchKeyEvent', {type, key: name, code: name, windowsVirtualKeyCode: code});
};
const at = async (selector, i) => {
  const r = await run(`(e => { e.scrollIntoView({block: 'center'}); const r = e.getClientRects()[0];
    return [r.left + r.width / 2, r.top + r.height / 2]; })(document.querySelectorAll('${selector}')[${i || 0}])`);
  return {x: r[0], y: r[1]};
};
const hover = async (selector, i) => send('Input.dispatchMouseEvent', {type: 'mouseMoved', ...await at(selector, i)});
const click = async (selector, i) => {
  const p = await at(selector, i);
  for (const type of ['mousePressed', 'mouseReleased']) await send('Input.dispatchMouseEvent', {type, ...p, button: 'left', clickCount: 1});
};
const select = (id, value) => run(`(e => { e.value = '${value}'; e.dispatchEvent(new Event('change', {bubbles: true})); })(document.getElementById('${id}'))`);
const picture = async (name, wide, high) => {
  if (pictures === '-') return;
  await send('Emulation.setDeviceMetricsOverride', {width: wide, height: high, deviceScaleFactor: 1, mobile: false});
  await wait(300);
  const all = await run('document.documentElement.scrollHeight');
  await send('Emulation.setDeviceMetricsOverride', {width: wide, height: Math.min(all, 9000), deviceScaleFactor: 1, mobile: false});
  await wait(200);
  const shot = await send('Page.captureScreenshot', {format: 'png'});
  fs.writeFileSync(path.join(pictures, path.basename(page, '.html') + '-' + name + '.png'), Buffer.from(shot.data, 'base64'));
};
const dark = async yes => {
  await send('Emulation.setEmulatedMedia', {features: [{name: 'prefers-color-scheme', value: yes ? 'dark' : 'light'}]});
  await wait(100); // the page hears of it between two frames
};
const background = () => run('getComputedStyle(document.body).backgroundColor');

/* The rows of the table of largest weights: [token, weight] */
const largest = () => run("[...document.querySelectorAll('#top tr')].map(r => [Number(r.cells[0].textContent), Number(r.cells[2].textContent)])");
/* The table must be the ten largest of a row of weights, to the three digits that are shown and the 1/4094 that the page keeps */
async function shows(label, row) {
  const list = await largest(), sorted = row.slice().sort((a, b) => b - a);
  const bad = list.filter(([j, w], k) => !(Math.abs(w - row[j]) < 0.0005 + 0.00013) || !(Math.abs(w - sorted[k]) < 0.0005 + 0.00026));
  is(label, list.length === Math.min(10, row.length) && !bad.length, JSON.stringify(list) + ' for ' + row.map(x => x.toFixed(4)));
}

async function attention(weights) {
  const n = await run("document.querySelectorAll('.t').length"), causal = await run("JSON.parse(document.getElementById('data').textContent).causal");
  for (; weights.length; weights = weights.slice(3)) {
    const [layer, head, file] = weights;
    const w = fs.readFileSync(file, 'utf8').trim().split('\n').map(l => l.split(' ').map(Number));
    is('there are as many tokens', w.length === n, n + ', not ' + w.length);
    await select('layer', layer), await select('head', head);
    for (const i of [n - 1, Math.floor(n / 2), 1]) {
      await hover('.t', i);
      await shows(`layer ${layer}, head ${head}: hovering over token ${i}`, causal ? w[i].slice(0, i + 1) : w[i]);
    }
    await run("document.querySelectorAll('.t')[2].focus()");
    await shows(`layer ${layer}, head ${head}: focus on token 2`, causal ? w[2].slice(0, 3) : w[2]);
    await key('ArrowRight', 39);
    await shows(`layer ${layer}, head ${head}: the arrow to token 3`, causal ? w[3].slice(0, 4) : w[3]);
    await key('End', 35);
    await shows(`layer ${layer}, head ${head}: the key End`, w[n - 1]);
    is('the token is told', (await run("document.getElementById('says').textContent")).startsWith(`Token ${n - 1}, `));
    is('one token is in the order of tabs', await run("document.querySelectorAll('.t[tabindex=\"0\"]').length") === 1);
    await select('way', '1');
    const back = w.map(r => r[1]).slice(causal ? 1 : 0);
    await hover('.t', 0), await hover('.t', 1);
    const list = await largest();
    is('what looks at token 1', list.every(([j, x]) => Math.abs(x - w[j][1]) < 0.00063) &&
      Math.abs(list[0][1] - Math.max(...back)) < 0.00063, JSON.stringify(list));
    await select('way', '0');
  }
  await hover('#matrix svg');
  is('the matrix says what is under the mouse', /looks at/.test(await run("document.getElementById('matrix-says').textContent")));
  const thumbs = await run("document.querySelectorAll('#thumbs button').length");
  await click('#thumbs button', thumbs - 1);
  is('a small picture chooses its head', await run("document.getElementById('layer').value + document.getElementById('head').value") ===
    await run("(b => b.dataset.l + b.dataset.h)(document.querySelectorAll('#thumbs button')[" + (thumbs - 1) + '])'));
  await key('ArrowLeft', 37);
  is('so do arrows', await run("document.getElementById('head').value === document.querySelector('#thumbs [aria-pressed=true]').dataset.h"));
  await select('layer', 0), await select('head', 1), await click('#thumbs button', 0);
  is('and the first of the layer that is shown',
    await run("document.getElementById('head').value + document.querySelector('#thumbs [aria-pressed=true]').dataset.h") === '00');
}

/* Every layer and head, and whatever else can be chosen; runs in the page */
function tour() {
  const odd = [], get = id => document.getElementById(id), change = (e, v) => { e.value = v; e.dispatchEvent(new Event('change', {bubbles: true})); };
  for (const l of [...get('layer').options])
    for (const h of [...get('head').options].map(o => o.value)) {
      change(get('layer'), l.value), change(get('head'), h);
      for (const e of ['part', 'lines', 'bins', 'pair', 'see'].map(get))
        if (e && !e.closest('[hidden]')) for (const v of [...e.options].slice(0, 3).map(o => o.value)) change(e, v);
      get('position').value = 5, get('position').dispatchEvent(new Event('input'));
      for (const e of document.querySelectorAll('svg [d], svg [cx], svg text'))
        if (/NaN|Infinity|undefined/.test(['d', 'cx', 'cy', 'x'].map(a => e.getAttribute(a)).join()))
          odd.push([l.value, h, e.outerHTML.slice(0, 100)]);
    }
  return odd;
}
async function everything() {
  const odd = await run('(' + tour + ')()');
  is('nothing is drawn nowhere', !odd.length, JSON.stringify(odd.slice(0, 2)));
}

async function access() {
  const tree = await send('Accessibility.getFullAXTree'), nodes = tree.nodes.filter(n => !n.ignored && n.role);
  const nameless = nodes.filter(n => ['button', 'combobox', 'slider', 'image', 'img', 'link'].includes(n.role.value) && !(n.name && n.name.value.trim()));
  is('everything to use or to see has a name', !nameless.length, JSON.stringify(nameless.slice(0, 3)));
  is('there are headings', nodes.filter(n => n.role.value === 'heading').length >= 3);
  await run('document.activeElement.blur()');
  const met = new Set(), plain = [];
  for (let i = 0; i < 20; i++) {
    await key('Tab', 9);
    const [id, outline, tag] = await run("(e => [e.id || e.className || e.tagName, getComputedStyle(e).outlineStyle, e.tagName])(document.activeElement)");
    met.add(id);
    if (outline === 'none' && tag !== 'BODY' && tag !== 'HTML') plain.push(tag + ' ' + id);
  }
  is('the tabulator reaches layer, head, switch and tokens', ['layer', 'head', 'theme'].every(x => met.has(x)) &&
    (![...met].length || await run("!document.getElementById('tokens')") || met.has('t')), [...met].join(' '));
  is('the focus is seen', !plain.length, plain.join());
}

async function colours() {
  const light = await background();
  await dark(true);
  is('it follows a dark system', await background() !== light);
  const says = () => run("document.getElementById('theme').textContent");
  is('the button says what it will do', await says() === 'Light colours', await says());
  await load();
  is('from the start', await says() === 'Light colours');
  await click('#theme');
  is('the switch brings light', await background() === light);
  is('and then offers dark', await says() === 'Dark colours');
  await click('#theme');
  is('and brings dark', await background() !== light);
  await dark(false);
}

/* Several runs: their lines, and what the page says of them */
async function others() {
  const names = await run("JSON.parse(document.getElementById('data').textContent).runs.map(r => r.name)");
  await select('layer', 0), await select('head', 0);
  const seen = await run("[...document.querySelectorAll('#phase-runs li')].map(e => e.textContent)");
  is('another run is over the phases', await run("document.querySelectorAll('#phase-figure .other').length") === seen.length - 1);
  is('with its name', seen[0] === 'this run' && seen.slice(1).every(x => names.includes(x)), seen.join());
  is('and over the plane', await run("document.querySelectorAll('#plane-figure .other').length") > 0);
  const legend = await run("(e => [e.getBoundingClientRect().left, e.previousElementSibling.getBoundingClientRect().right])(document.querySelector('.legend'))");
  is('the legend stands beside its chart', legend[0] >= legend[1], legend.join());
}

/* Two other runs with the same delta and b, of which the second has other frequencies */
async function frequencies() {
  const turned = position => run("(p => { p.value = " + position + "; p.dispatchEvent(new Event('input')); return [...document." +
    "querySelectorAll('#plane-figure .other[stroke-dasharray]')].map(e => e.getAttribute('d')); })(document.getElementById('position'))");
  await select('layer', 0), await select('head', 0), await select('pair', 1);
  const still = await turned(0), far = await turned(60);
  is('a run of other frequencies begins as the others', still.length === 2 && still[0] === still[1]);
  is('and turns by its own', far.length === 2 && far[0] !== far[1]);
}

/* A page that renews itself: what is chosen stays, and Hold holds */
async function renews() {
  const loads = () => some('Page.loadEventFired').length;
  await select('layer', 1), await select('head', 1);
  const before = loads();
  for (let i = 0; i < 100 && loads() === before; i++) await wait(50);
  is('it renews itself', loads() > before);
  await wait(200);
  is('layer and head stay', await run("document.getElementById('layer').value + document.getElementById('head').value") === '11');
  await click('#hold');
  const held = loads();
  await wait(1500);
  is('Hold holds', loads() === held);
  is('and offers to go on', await run("document.getElementById('hold').textContent") === 'Go on');
}

/* One page, from its loading to the telephone; of the first one also its access and colours */
async function visit(weights) {
  events.length = 0;
  await send('Emulation.setDeviceMetricsOverride', {width: 1240, height: 900, deviceScaleFactor: 1, mobile: false});
  await dark(false);
  const times = [await load(), await load()];
  is('it opens in under a second', Math.min(...times) < 1000, times.join(' ms, ') + ' ms');
  console.log(path.basename(page) + ' opened in ' + Math.round(Math.min(...times)) + ' ms');
  is('it opens at the first head that does something to the plane', await run("(h => Number(document.getElementById('head').value) === " +
    "Math.max(0, h.findIndex(x => x.plane !== 'none')))(JSON.parse(document.getElementById('data').textContent).layers[0].heads)"));
  if (await run("!!document.getElementById('attention')")) await attention(weights);
  await picture('light', 1240, 900);
  if (pictures !== '-') await dark(true), await load(), await picture('dark', 1240, 900), await dark(false), await load();
  if (path.basename(page) === 'runs.html') await others();
  if (path.basename(page) === 'slow.html') await frequencies();
  if (path.basename(page) === 'renews.html') return renews();
  await everything();
  if (page === first) await access(), await colours();
  await send('Emulation.setDeviceMetricsOverride', {width: 360, height: 740, deviceScaleFactor: 2, mobile: true});
  await load();
  is('it fits a telephone', await run('document.documentElement.scrollWidth') <= 360, await run('document.documentElement.scrollWidth'));
  const under = await run("[...document.querySelectorAll('.chart .legend')].map(e => e.getBoundingClientRect().top - e.previousElementSibling.getBoundingClientRect().bottom)");
  is('there the legends stand below their charts', under.every(x => x >= 0), under.join());
  await picture('phone', 360, 740);
  const errors = [...some('Runtime.exceptionThrown').map(e => e.params.exceptionDetails.exception.description),
    ...some('Log.entryAdded').filter(e => e.params.entry.level !== 'verbose').map(e => e.params.entry.text),
    ...some('Runtime.consoleAPICalled').map(e => JSON.stringify(e.params.args))];
  is('no errors in the console', !errors.length, errors.slice(0, 3).join(' | '));
  is('no dialog', !some('Page.javascriptDialogOpening').length);
  is('nothing of what the text says is run', await run('window.hacked === undefined && !document.querySelector("main img")'));
  const asked = some('Network.requestWillBeSent').map(e => e.params.request.url).filter(u => !/^(data:|blob:|file:.*[.]html$)/.test(u));
  is('no network', !asked.length, asked.join(' '));
}

(async () => {
  const target = await send('Target.createTarget', {url: 'about:blank'}, true);
  session = (await send('Target.attachToTarget', {targetId: target.targetId, flatten: true}, true)).sessionId;
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await send(domain + '.enable');
  for (const one of pages) {
    const [name, ...weights] = one.split(',');
    page = name;
    await visit(weights);
  }
  end(failed ? 1 : 0);
})().catch(e => { console.log('FAIL ' + page + ': ' + e.message); failed++; end(1); });
