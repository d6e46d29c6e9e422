// node tests/web.js CHROMIUM FOLDER PICTURES PAGE: opens the page of `make web` in Chromium and uses it as a reader would. FOLDER has what
// tests/web.sh puts there: texts and checkpoints to pick; a checkpoint of the page's is left in it. PICTURES: a folder for screenshots,
// or -. The last line is N passed, N failed.
'use strict';
const fs = require('fs'), path = require('path');
const [chromium, folder, pictures, file] = process.argv.slice(2);
const b = require('./browser.js').open(chromium, folder, 240);
const {is, run, until} = b;
b.page = file;

const text = id => run(`document.getElementById('${id}').textContent`);
const set = (id, value) => run(`(e => { e.value = ${JSON.stringify(value)}; e.dispatchEvent(new Event('change', {bubbles: true})); })` +
  `(document.getElementById('${id}'))`);
const says = (id, part, ms) => until(`document.getElementById('${id}').textContent.includes(${JSON.stringify(part)})`, ms || 10000);
const steps = async () => Number((await text('steps')).split(' ')[0]);
const errorLine = () => run("(e => e.hidden ? '' : e.textContent)(document.getElementById('error'))");

/* Makes a model; `more` are further settings. Returns the error's line, if any. */
async function make(kind, count, more) {
  await run("document.getElementById('status').textContent = ''");
  await set('kind', kind), await set('count', String(count)), await set('more', more || '');
  await b.click('#make');
  await until("document.getElementById('status').textContent !== '' || !document.getElementById('error').hidden", 10000);
  return errorLine();
}
const train = async ms => {
  await b.click('#train');
  return says('status', 'All steps are done', ms);
};
const write = async () => {
  await run("document.getElementById('written').replaceChildren()");
  await b.click('#write');
  await until("document.getElementById('written').textContent !== '' || !document.getElementById('error').hidden", 20000);
  return text('written');
};
const nowhere = "[...document.querySelectorAll('svg [d], svg [cx], svg text')].filter(e => /NaN|Infinity|undefined/.test(" +
  "['d', 'cx', 'cy', 'x'].map(a => e.getAttribute(a)).join())).length";

async function learns() {
  is('the program is unpacked', await says('status', 'Ready.', 30000), await errorLine());
  await b.pick('#text', path.join(folder, 'text.txt'));
  is('a text is picked', await says('text-says', 'text.txt'), await text('text-says'));
  is('the first model is made', !await make('cmha', 100));
  is('its plane has its pairs', await run("document.querySelectorAll('#plane .mine').length") === 8);
  const rope = 'mean delta 1 and mean b 0. '; // b itself, not the first digit of one
  is('they begin at RoPE', (await text('plane-says')).includes(rope), await text('plane-says'));
  await b.click('#train');
  is('a step is taken', await until("Number(document.getElementById('steps').textContent.split(' ')[0]) > 2", 20000));
  is('the button says what it will do', await text('train') === 'Pause');
  await b.click('#train');
  is('it pauses', await says('status', 'Paused.'));
  const at = await steps();
  await b.wait(400);
  is('no step is taken in a pause', await steps() === at, at + ', then ' + await steps());
  is('the text is learned to the end', await train(90000), await text('status') + ' ' + await errorLine());
  const loss = (await text('curve-says')).match(/From ([0-9.]+) to ([0-9.]+)/) || ['', 0, 0];
  is('the loss falls by more than 1.5', loss[1] - loss[2] > 1.5, await text('curve-says'));
  is('the held-out loss is near it', Math.abs(await text('held') - loss[2]) < 0.7, await text('held'));
  is('the curve is drawn', await run("document.querySelectorAll('#curve path[d*=L][fill=none]').length") === 2 &&
    await run("document.querySelectorAll('#curve circle').length") === 4);
  is('delta and b have moved', !(await text('plane-says')).includes(rope), await text('plane-says'));
  is('nothing is drawn nowhere', !await run(nowhere));
  await set('head', '3'), await set('layer', '1');
  is('another head is drawn', await run("document.querySelectorAll('#plane .mine').length") === 8);
  await run("document.querySelector('details').open = true");
  is('its numbers are in the table', await run("document.querySelectorAll('#plane-table tbody tr').length") === 8);
  is('tokens a second are told', Number((await text('speed')).replace(',', '')) > 100, await text('speed'));
  console.log('in the browser: ' + await text('speed') + ' tokens/s, ' + loss[0]);
  const wrote = await write();
  is('it writes on', wrote.startsWith('The ') && wrote.length > 100, wrote + await errorLine());
  const share = of => (wrote.match(of) || []).length / wrote.length;
  is('words of letters', share(/[a-z]/g) > 0.5 && share(/ /g) > 0.08, wrote);
}

async function keeps() {
  await b.send('Browser.setDownloadBehavior', {behavior: 'allow', downloadPath: path.resolve(folder)}, true);
  const saved = path.join(folder, 'page.safetensors'), plane = await text('plane-says');
  await b.click('#save');
  for (let i = 0; i < 200 && !fs.existsSync(saved); i++) await b.wait(50);
  is('a checkpoint is downloaded', fs.existsSync(saved));
  is('another model has no such plane', !await make('cmha', 3) && await text('plane-says') !== plane);
  await b.pick('#load', saved);
  is('the checkpoint is opened', await says('status', 'page.safetensors'), await errorLine());
  is('it goes on where it was', await text('steps') === '100 of 100' && await text('plane-says') === plane, await text('steps'));
  await b.click('#train');
  is('no step is left', await says('error', 'begin anew for more'));
  const native = path.join(folder, 'native.safetensors');
  if (!fs.existsSync(native)) return;
  await b.pick('#load', native);
  is('a checkpoint of train_tiny is opened', await says('status', 'native.safetensors'), await errorLine());
  is('it writes', (await write()).length > 100, await errorLine());
}

/* What is wrong is told in one line, and changes nothing. */
async function refuses() {
  await make('cmha', 50);
  const parameters = await text('parameters');
  const one = async (label, words) => {
    await until("!document.getElementById('error').hidden", 10000);
    const line = await errorLine();
    is(label, words.test(line) && !line.includes('\n'), line);
    is(label + ': the model is as it was', await text('parameters') === parameters && await steps() === 0);
  };
  await b.pick('#text', path.join(folder, 'empty.txt'));
  await one('an empty text', /the text has 0 bytes/);
  for (const name of fs.readdirSync(folder).filter(f => f.startsWith('hostile-'))) {
    await run("document.getElementById('error').hidden = true");
    await b.pick('#load', path.join(folder, name));
    await one(name, /the checkpoint|encoder|tokens are|a step of|memory/);
  }
  for (const [words, line] of [['d_modle=8', /d_modle/], ['n_heads=7', /7/], ['lr', /NAME=VALUE, not lr/], ['kind=never', /never/],
    ['causal=0', /encoder/], ['vocabulary=300', /300/], ['batch=100000', /100000/], ['d_model=1000000 n_layers=1000', /./]]) {
    await make('cmha', 50, words);
    await one(words, line);
  }
  for (const [id, wrong, line] of [['bytes', '', /^Bytes is a number from 1 to 4096$/], ['bytes', '-5', /^Bytes is/],
    ['temperature', '', /^Temperature is a number from 0 to 100$/]]) {
    const usual = await run(`document.getElementById('${id}').value`);
    await set(id, wrong);
    const wrote = await write();
    await one(id + ' "' + wrong + '"', line);
    is(id + ' "' + wrong + '": nothing is written', wrote === '', wrote.length);
    await set(id, usual);
  }
  await set('seed', '');
  await make('cmha', 50);
  await one('no seed', /^Seed is a number from 0 to 1000000$/);
  await set('seed', '1');
  await set('bytes', '4096');
  await run("document.getElementById('write').click()"); // goes on while a text is picked
  await b.pick('#text', path.join(folder, 'short.txt'));
  is('a text is picked while the page writes', await says('text-says', 'short.txt'), await text('text-says'));
  await set('bytes', '300');
  await b.click('#train');
  await until("!document.getElementById('error').hidden", 10000);
  is('a short text', /bytes to learn from/.test(await errorLine()), await errorLine());
  is('training has stopped', await says('train', 'Train'));
  await b.pick('#text', path.join(folder, 'text.txt'));
  await says('text-says', 'text.txt');
}

async function holdsNothingOut() {
  const line = await make('cmha', 30, 'n_layers=1 d_model=32 d_ff=32 n_heads=4 length=32 batch=2 held_out=0');
  is('a text is learned whole', !line && await train(20000), line || await errorLine());
  is('without a held-out loss', await text('held') === '–' && await text('bits') === '–', await text('held'));
  is('in the curve neither', !await run("document.querySelectorAll('#curve circle').length") && !await run(nowhere));
}

/* A curve is drawn ten times a second, whatever the number of looks at the held-out text. */
async function lasts() {
  await make('cmha', 2600, 'n_layers=1 d_model=8 d_ff=8 n_heads=1 length=4 batch=1 eval_tokens=8');
  is('many steps are taken', await train(60000), await errorLine());
  const circles = await run("document.querySelectorAll('#curve circle').length");
  is('and at most 100 looks drawn', circles > 50 && circles <= 100, circles);
}

async function everyKind() {
  const kinds = await run("[...document.getElementById('kind').options].map(o => o.value)");
  is('there are kinds', kinds.length > 10, kinds.join());
  for (const kind of kinds) {
    const line = await make(kind, 2, 'n_layers=1 d_model=32 d_ff=32 n_heads=4 length=32 batch=2');
    const done = !line && await train(20000);
    is(kind + ' learns and writes', done && (await write()).length > 20, line || await errorLine());
    is(kind + ' is drawn', !await run(nowhere));
  }
}

/* Runs in the page: text that is hard to read, [words, ratio] */
function faint() {
  const parts = c => c.match(/[0-9.]+/g).map(Number);
  const light = c => parts(c).slice(0, 3).map(v => v / 255).map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => {
    const c = getComputedStyle(e).backgroundColor, p = parts(c);
    return p.length > 3 && p[3] === 0 ? behind(e.parentElement) : c;
  };
  const out = [];
  for (const e of document.querySelectorAll('body *')) {
    const words = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.data.trim()).join('');
    const style = getComputedStyle(e);
    if (!words || e.disabled || !e.getClientRects().length || /SCRIPT|STYLE|OPTION/.test(e.tagName)) continue;
    const a = light(e.ownerSVGElement ? style.fill : style.color), g = light(behind(e));
    const ratio = (Math.max(a, g) + 0.05) / (Math.min(a, g) + 0.05);
    if (!(ratio >= 4.5)) out.push([words.slice(0, 30), ratio.toFixed(2)]);
  }
  return out;
}

async function looks() {
  for (const [width, height, mobile] of [[1280, 900], [390, 844, true]])
    for (const dark of [false, true]) {
      const name = width + (dark ? '-dark' : '-light');
      await b.size(width, height, mobile), await b.dark(dark);
      await b.wait(200);
      const wide = await run('document.documentElement.scrollWidth');
      is(name + ' has no overflow', wide <= width, wide);
      const hard = await run('(' + faint + ')()');
      is(name + ' is readable', !hard.length, JSON.stringify(hard.slice(0, 5)));
      is(name + ': the button says what it will do', await text('theme') === (dark ? 'Light colours' : 'Dark colours'));
      if (pictures === '-') continue;
      await b.size(width, await run('document.documentElement.scrollHeight'), mobile);
      await b.wait(200);
      const shot = await b.send('Page.captureScreenshot', {format: 'png'});
      fs.writeFileSync(path.join(pictures, 'web-' + name + '.png'), Buffer.from(shot.data, 'base64'));
    }
  await b.dark(false);
  const ground = () => run('getComputedStyle(document.body).backgroundColor'), light = await ground();
  await b.click('#theme');
  is('the switch brings dark', await ground() !== light && await text('theme') === 'Light colours');
  is('and it is readable', !(await run('(' + faint + ')()')).length);
  await b.click('#theme');
  is('and light', await ground() === light && await text('theme') === 'Dark colours');
  await b.size(1280, 900);
}

async function access() {
  const tree = await b.send('Accessibility.getFullAXTree'), nodes = tree.nodes.filter(n => !n.ignored && n.role);
  const roles = ['button', 'combobox', 'textbox', 'spinbutton', 'image', 'img', 'link', 'region'];
  const nameless = nodes.filter(n => roles.includes(n.role.value) && !(n.name && n.name.value.trim()));
  is('everything to use or to see has a name', !nameless.length, JSON.stringify(nameless.slice(0, 3)));
  is('there are headings', nodes.filter(n => n.role.value === 'heading').length >= 5);
  await run('document.activeElement.blur(), scrollTo(0, 0)');
  const met = new Set(), plain = [];
  for (let i = 0; i < 26; i++) {
    await b.key('Tab', 9);
    const [id, outline] = await run('(e => [e.id || e.tagName, getComputedStyle(e).outlineStyle])(document.activeElement)');
    met.add(id);
    if (outline === 'none' && id !== 'BODY' && id !== 'HTML') plain.push(id);
  }
  const all = ['train', 'theme', 'text', 'kind', 'size', 'count', 'seed', 'more', 'make', 'save', 'load', 'prompt', 'temperature', 'bytes',
    'write', 'written', 'layer', 'head', 'SUMMARY'];
  is('the tabulator reaches every control', all.every(x => met.has(x)), all.filter(x => !met.has(x)).join());
  is('the focus is seen', !plain.length, plain.join());
  await run("document.getElementById('write').focus(), document.getElementById('written').replaceChildren()");
  await b.send('Input.dispatchKeyEvent', {type: 'keyDown', key: 'Enter', code: 'Enter', windowsVirtualKeyCode: 13, text: '\r'});
  is('the key Enter writes', await until("document.getElementById('written').textContent !== ''", 10000), await errorLine());
}

function quiet() {
  const errors = [...b.some('Runtime.exceptionThrown').map(e => e.params.exceptionDetails.exception.description),
    ...b.some('Log.entryAdded').filter(e => e.params.entry.level !== 'verbose').map(e => e.params.entry.text),
    ...b.some('Runtime.consoleAPICalled').map(e => JSON.stringify(e.params.args))];
  is('no errors in the console', !errors.length, errors.slice(0, 3).join(' | '));
  const asked = b.some('Network.requestWillBeSent').map(e => e.params.request.url).filter(u => !/^(data:|blob:|file:.*[.]html$)/.test(u));
  is('no network', !asked.length, asked.join(' '));
}

/* A browser without what the page needs is told so. */
async function lacks() {
  for (const [what, without] of [['SIMD in WebAssembly', 'WebAssembly.validate = () => false'], ['WebAssembly,', 'delete window.WebAssembly'],
    ['DecompressionStream', 'delete window.DecompressionStream']]) {
    const {identifier} = await b.send('Page.addScriptToEvaluateOnNewDocument', {source: without});
    await b.load(file);
    is('without ' + what, await says('error', 'This browser has no ' + what) && await run("document.getElementById('train').disabled"),
      await errorLine());
    await b.send('Page.removeScriptToEvaluateOnNewDocument', {identifier});
  }
}

async function main() {
  await b.start(['Page', 'Runtime', 'Log', 'Network', 'DOM']);
  await b.size(1280, 900);
  await b.dark(false);
  await b.load(file);
  await learns();
  await looks();
  await access();
  await keeps();
  await refuses();
  await holdsNothingOut();
  await lasts();
  await everyKind();
  quiet();
  await lacks();
  b.end();
}
main().catch(e => b.fail(e.message));
