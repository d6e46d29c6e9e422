'use strict';
(() => {
const $ = id => document.getElementById(id);
const field = $('find'), list = $('found'), root = document.documentElement;

/* ---- Colours ---- */
const system = matchMedia('(prefers-color-scheme: dark)');
const dark = () => root.classList.contains('dark') || (system.matches && !root.classList.contains('light'));
const label = () => { $('theme').textContent = dark() ? 'Light colours' : 'Dark colours'; };
$('theme').addEventListener('click', () => {
  const next = dark() ? 'light' : 'dark';
  root.classList.remove('light', 'dark');
  root.classList.add(next);
  label();
});
system.addEventListener('change', label);
label();
if (matchMedia('(max-width: 860px)').matches) $('contents').open = false;

/* ---- What can be found: anchors, with what is said of them ---- */
/* Hyphens, brackets, 's and -ize do not matter */
const plain = text => text.toLowerCase().replace(/ö/g, 'o').replace(/['’]s?\b/g, '').replace(/iz(?=e|a|ing)/g, 'is')
  .replace(/[.:#,;()\-–]/g, ' ').replace(/\s+/g, ' ').trim();
/* What clipping, clipped and clips have in common */
const stem = word => word.length < 5 ? word :
  word.replace(/^(...+?)(isation|ation|isers?|is(e|ed|ing|er)|ings?|ions?|ive|ers?|ed|es|s|e)$/, '$1').replace(/([^aeiou])\1$/, '$1');
const short = text => text.length > 150 ? text.slice(0, 147) + '…' : text;
const entries = [];
for (const a of document.querySelectorAll('a.n')) {
  const row = a.closest('tr'), article = a.closest('article');
  if (a.classList.contains('equation')) {
    const paper = row.dataset.find.split(' eq ')[0], what = row.querySelector('.what').textContent;
    entries.push({id: a.id, title: paper + ' eq ' + a.textContent, says: what, names: plain(paper + ' eq ' + a.textContent), text: plain(what)});
    continue;
  }
  const behind = a.closest('.declared') && a.closest('.declared').nextElementSibling;
  const says = row ? row.lastElementChild : a.closest('dt') ? a.closest('dt').nextElementSibling :
    behind && behind.className === 'behind' ? behind : article && article.querySelector('.says');
  const text = says ? says.textContent : '';
  entries.push({id: a.id, title: a.id, says: short(text), names: plain(a.id.replace(/^\w+_config[.]/, '')), text: plain(a.id + ' ' + text),
    old: /^These names of [0-9]/.test(text)});
}
for (const h of document.querySelectorAll('h2, h3[id]')) {
  const id = h.id || h.closest('section').id;
  if (id) entries.push({id, title: h.textContent, says: '', names: plain(h.textContent), text: plain(h.textContent)});
}

/* Lower is better; -1: not found. All words must be there, or what begins like them; of three and more all but one.
   An old name comes last unless it is wanted whole. */
function rank(e, wanted, words, stems) {
  const bare = e.names.replace(/^cmha_/, '');
  if (e.old && e.names !== wanted) return bare.includes(wanted.replace(/ /g, '_')) ? 9 : -1;
  if (e.names === wanted || bare === wanted) return 0;
  if (e.names.endsWith(' ' + wanted)) return 1;
  const [, paper, number] = /^(.*?) ?(eq \d+)$/.exec(wanted) || [];
  if (number) return paper && e.names.startsWith(paper) && e.names.endsWith(' ' + number) ? 1 : -1;
  if (e.text.startsWith(wanted)) return 2;
  if (bare.startsWith(wanted.replace(/ /g, '_'))) return 3;
  if (e.names.includes(wanted) || e.names.includes(wanted.replace(/ /g, '_'))) return 4;
  if (words.every(w => e.names.includes(w))) return 5;
  if (e.text.includes(wanted)) return 6;
  if (words.every(w => e.text.includes(w) || e.names.includes(w))) return 7;
  const all = ' ' + (e.names + ' ' + e.text).replace(/_/g, ' '), there = stems.filter(w => all.includes(' ' + w)).length;
  return there === stems.length ? 8 : there > 1 && there > stems.length - 2 ? 9 : -1;
}

/* Places of entries, the best first. */
function search(wanted) {
  const words = wanted.split(' '), stems = words.map(stem);
  return entries.map((e, i) => [rank(e, wanted, words, stems), e.title.length, i]).filter(h => h[0] >= 0)
    .sort((a, b) => a[0] - b[0] || (a[0] > 1 ? a[1] - b[1] : 0) || a[2] - b[2]).map(h => h[2]);
}

/* What other libraries say, and what the header calls it */
const OURS = {'kv cache': 'cmha_cache', load: 'open', create: 'init', destroy: 'close', free: 'close', multifrequency: 'multi frequency',
  quantise: 'cmha_model_pack', 'error message': 'cmha_error', 'generate text': 'cmha_generate', 'finite differences': 'cmha_gradient_check'};
const ours = wanted => Object.keys(OURS).reduce((text, word) => text.replace(RegExp('\\b' + word + '\\b'), OURS[word]), wanted);

let chosen = -1;
function show() {
  const wanted = plain(field.value).replace(/\b(equation|eqs?) *(?=\d)/, 'eq ');
  list.hidden = !wanted;
  chosen = 0;
  if (!wanted) return;
  const hits = [...new Set([...new Set([ours(wanted), wanted])].flatMap(search))].slice(0, 24);
  list.replaceChildren(...hits.map(i => {
    const e = entries[i], li = document.createElement('li'), a = document.createElement('a'), small = document.createElement('small');
    a.href = '#' + e.id;
    small.textContent = e.says;
    a.append(e.title, small);
    li.append(a);
    return li;
  }));
  if (!hits.length) {
    const p = document.createElement('p');
    p.textContent = 'Nothing of that name.';
    list.append(p);
  }
  mark();
}
function mark() {
  [...list.children].forEach((li, i) => li.classList.toggle('on', i === chosen));
  const on = list.children[chosen];
  if (on) on.scrollIntoView({block: 'nearest'});
}
/* Also to a place that the page was led to before */
function lead(hash) {
  close();
  field.blur();
  location.hash = hash;
  $(hash.slice(1)).scrollIntoView();
}
function close() {
  list.hidden = true;
}
field.addEventListener('input', show);
field.addEventListener('focus', () => { if (field.value) show(); });
field.addEventListener('keydown', event => {
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (step) {
    chosen = Math.max(0, Math.min(list.children.length - 1, chosen + step));
    mark();
    event.preventDefault();
  }
  if (event.key === 'Enter') {
    const a = list.querySelectorAll('a')[chosen];
    if (a) lead(a.hash);
    event.preventDefault();
  }
  if (event.key === 'Escape') { close(); field.blur(); }
});
list.addEventListener('click', event => {
  const a = event.target.closest('a');
  if (!a) return;
  event.preventDefault();
  lead(a.hash);
});
document.addEventListener('click', event => { if (!event.target.closest('.find')) close(); });
document.addEventListener('keydown', event => {
  if (event.key === '/' && document.activeElement !== field) { field.focus({preventScroll: true}); event.preventDefault(); }
});
})();
