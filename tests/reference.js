// node tests/reference.js CHROMIUM FOLDER PICTURES PAGE: opens the page of `make docs` and uses it as a reader would: finds functions and
// equations by the field above, follows links, changes colours, from 1280 to 390 pixels. PICTURES: a folder for screenshots, or -;
// an argument #PLACE behind the page: pictures of that place as well. The last line is N passed, N failed.
'use strict';
const fs = require('fs'), path = require('path');
const [chromium, folder, pictures, page, ...places] = process.argv.slice(2);
const b = require('./browser.js').open(chromium, folder, 100);

const background = () => b.run('getComputedStyle(document.body).backgroundColor');
async function picture(name) {
  if (pictures === '-') return;
  const shot = await b.send('Page.captureScreenshot', {format: 'png'});
  fs.writeFileSync(path.join(pictures, name + '.png'), Buffer.from(shot.data, 'base64'));
}

/* Types into the field, letter by letter as far as the page can tell, and presses Enter: where does it lead? */
async function find(words) {
  await b.run(`(f => { f.focus(); f.value = ${JSON.stringify(words)}; f.dispatchEvent(new Event('input')); })(document.getElementById('find'))`);
  const first = await b.run("(a => a ? a.getAttribute('href') : '')(document.querySelector('#found a'))");
  await b.key('Enter', 13);
  await b.until('document.activeElement.id !== "find"', 500);
  return first && await b.run('location.hash') === first ? first : 'nowhere';
}

/* What is wider than the window and does not scroll by itself */
const overflowing = `[...document.querySelectorAll('main *')].filter(e => {
  const r = e.getBoundingClientRect();
  return r.width && r.right > innerWidth + 1 && !e.closest('.wide, pre, .shown') && !e.closest('math');
}).slice(0, 3).map(e => e.outerHTML.slice(0, 90)).join(' | ')`;

const widest = `[...document.querySelectorAll('body *')].sort((x, y) => y.getBoundingClientRect().right - x.getBoundingClientRect().right)
  .filter(e => !e.closest('.wide, pre, .shown, .formula')).slice(0, 2).map(e => e.textContent.slice(0, 80)).join(' | ')`;

/* Contrast of a piece of text with what is behind it, least over all kinds */
const contrast = `(() => {
  const light = c => c.map(x => x / 255).map(x => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
  const value = c => { const [r, g, l] = light(c); return 0.2126 * r + 0.7152 * g + 0.0722 * l; };
  const numbers = text => text.match(/[0-9.]+/g).map(Number);
  const behind = e => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3]) return c.slice(0, 3); } return [255, 255, 255]; };
  let least = 21;
  for (const s of ['p', 'a', 'code', '.lines', '.n', '.behind', 'th', 'nav a', 'nav ul ul a', 'label', 'button', 'math', '.shape', 'small']) {
    const e = document.querySelector('main ' + s) || document.querySelector(s);
    if (!e) continue;
    const [x, y] = [value(numbers(getComputedStyle(e).color).slice(0, 3)), value(behind(e))].sort((p, q) => q - p);
    least = Math.min(least, (x + 0.05) / (y + 0.05));
  }
  return least;
})()`;

async function visit(width, height, dark) {
  const name = (width > 600 ? 'desktop' : 'phone') + (dark ? '-dark' : '-light');
  await b.size(width, height, width < 600);
  await b.dark(dark);
  await b.load(page);
  const wide = await b.run('document.documentElement.scrollWidth');
  b.is(name + ': nothing is wider than the window', wide <= width, wide + ': ' + await b.run(widest));
  b.is(name + ': nothing sticks out', await b.run(overflowing) === '', await b.run(overflowing));
  b.is(name + ': text has a contrast of 4.5', await b.run(contrast) >= 4.5, await b.run(contrast));
  await picture(name);
  for (const place of places) {
    await b.run(`location.hash = ${JSON.stringify(place)}`);
    await b.wait(150);
    await picture(name + place.replace('#', '-'));
  }
}

const WANTED = [
  ['cmha_attention_forward', '#cmha_attention_forward'], ['attention_forward', '#cmha_attention_forward'], ['cmha_mobius', '#cmha_mobius'],
  ['n_kv_heads', '#cmha_model_config.n_kv_heads'], ['CMHA_ERR_SHAPE', '#CMHA_ERR_SHAPE'], ['eq. 7', '#eq-complexformer-7'],
  ['eq 27', '#eq-mobiusattention-27'], ['CRAT eq 12', '#eq-crat-12'], ['möbiusattention eq. 5', '#eq-mobiusattention-5'],
  ['mobiusattention equation 5', '#eq-mobiusattention-5'], ['Euler transform', '#eq-complexformer-1'], ['angular score', '#eq-crat-12'],
  ['complex layer norm', '#eq-crat-8'], ['Möbius eq 6', '#eq-mobiusattention-6'],
  ['multi-head attention', '#eq-complexformer-9'], ["Euler's formula", '#eq-complexformer-1'], ['phase-aware attention', '#eq-cope-2'],
  ['complex positional embedding', '#eq-cope-1'], ['loxodromic', '#eq-mobiusattention-4'], ['multi-frequency positional encoding', '#eq-crat-2'],
  ['cosine similarity', '#eq-crat-18'], ['CMoE', '#eq-crat-21'], ['component-wise clipping', '#eq-crat-22'],
  ['componentwise clipping', '#cmha_componentwise_clip'], ['low-rank projection', '#eq-crat-15'], ['learning-rate', '#cmha_learning_rate'],
  ['optimizer', '#cmha_trainer_config.optimiser'], ['load model', '#cmha_model_open'], ['KV cache', '#cmha_cache'],
  ['destroy context', '#cmha_context_close'], ['softmax', '#eq-crat-13'], ['quantize', '#cmha_model_pack'], ['error message', '#cmha_error'],
  ['generate text', '#cmha_generate'], ['finite differences', '#cmha_gradient_check'], ['CoPE eq 10', '#eq-cope-10'], ['CoPE eq 5', '#eq-cope-5'],
  ['cmha_trainer_fit', '#cmha_trainer_fit'], ['Training', '#room-training'], ['no such thing at all', 'nowhere']];

(async () => {
  await b.start(['Page', 'Runtime', 'Log', 'Network', 'DOM']);
  b.page = page;
  for (const dark of [false, true]) await visit(1280, 900, dark);
  for (const dark of [false, true]) await visit(390, 800, dark);
  await b.size(1280, 900, false);
  await b.dark(false);
  await b.load(page);
  for (const [words, where] of WANTED) {
    const found = await find(words);
    b.is('"' + words + '" leads to ' + where, found === where, found);
    if (where === 'nowhere' || found !== where) continue;
    const top = await b.run(`document.getElementById(${JSON.stringify(where.slice(1))}).getBoundingClientRect().top`);
    b.is('"' + words + '": the place is seen', top > 30 && top < 880, top);
  }
  // every equation by its number, and every function of the papers by its name
  const all = await b.run(`[...document.querySelectorAll('tr[data-find]')].map(r => [r.dataset.find.replace(/-[0-9]+$/, ''),
    '#' + r.querySelector('a.equation').id, (a => a ? a.getAttribute('href') : '')(r.querySelector('td:last-child a[href^="#cmha_"]'))])`);
  const lost = [];
  for (const [words, where, code] of all) {
    if (await find(words) !== where) lost.push(words);
    if (code && await find(code.slice(1)) !== code) lost.push(code);
  }
  b.is('every equation and its function is found', all.length > 75 && !lost.length, lost.slice(0, 4).join());
  await b.key('Escape', 27);
  await b.run("document.activeElement.blur(), document.getElementById('found').hidden = true");
  const light = await background(), says = () => b.run("document.getElementById('theme').textContent");
  b.is('the button says what it will do', await says() === 'Dark colours', await says());
  await b.click('#theme');
  b.is('and does', await background() !== light && await says() === 'Light colours', await says());
  const errors = [...b.some('Runtime.exceptionThrown').map(e => e.params.exceptionDetails.exception.description),
    ...b.some('Log.entryAdded').filter(e => e.params.entry.level !== 'verbose').map(e => e.params.entry.text)];
  b.is('no errors in the console', !errors.length, errors.slice(0, 3).join(' | '));
  const asked = b.some('Network.requestWillBeSent').map(e => e.params.request.url).filter(u => !/^file:.*[.]html(#.*)?$/.test(u));
  b.is('no network', !asked.length, asked.join(' '));
  b.end();
})().catch(e => b.fail(e.message));
