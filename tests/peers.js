// tests/peers.js PEERS FOLDER MODELS: compares our ids and decoded texts (by tests/peers.c) with other people's tokenizers, packages of npm below
// NODE_PATH: gpt-tokenizer and js-tiktoken (GPT-2, cl100k, o200k), tokenizers (Hugging Face's own, in Rust), @huggingface/tokenizers.
// FOLDER, MODELS: the tokenizers to try, tokenizer.json files called NAME.json; cl100k.json and o200k.json are made there from js-tiktoken's
// ranks. tests/peers.sh calls this. Prints N passed, N failed, N skipped.
'use strict';
const fs = require('fs'), path = require('path'), {spawnSync} = require('child_process');
const [, , OURS, FOLDER, MODELS] = process.argv;
let passed = 0, failed = 0, skipped = 0;

function say(name, problem) {
    if (!problem) { passed++; return; }
    failed++;
    console.log('FAIL ' + name + ': ' + problem);
}

function load(name) {
    try { return require(name); } catch (e) {
        skipped++;
        console.log('SKIP the package ' + name + ' is not there');
        return null;
    }
}

// ------------------------------------------------------------------ texts

let state = 12345;
function random(n) { // a small generator with a fixed start: the same texts everywhere
    state = (Math.imul(state, 1103515245) + 12345) >>> 0;
    return Math.floor(state / 65536) % n;
}
const span = (from, to) => Array.from({length: to - from + 1}, (_, i) => String.fromCodePoint(from + i));
const KINDS = [ // characters as old as Unicode 6, so that everybody's tables agree
    span(0x61, 0x7a), span(0x41, 0x5a), span(0x30, 0x39), [' '], ['\n'], [' ', '\t', '\r', '\n', '\v', '\f'],
    ['\u0085', '\u00a0', '\u1680', '\u2000', '\u2003', '\u2009', '\u200a', '\u2028', '\u2029', '\u202f', '\u205f', '\u3000'],
    span(0x21, 0x2f), span(0x3a, 0x40), span(0x5b, 0x60), span(0x7b, 0x7e), span(0xa1, 0xbf), span(0xc0, 0x17f), span(0x370, 0x373),
    span(0x391, 0x3a1), span(0x410, 0x44f), span(0x5d0, 0x5ea), span(0x627, 0x64a), span(0x64b, 0x652), span(0x660, 0x669),
    span(0x905, 0x939), span(0x93e, 0x94d), span(0xe01, 0xe2e), span(0x1100, 0x1112), span(0x1161, 0x1175), span(0xac00, 0xac40),
    span(0x3041, 0x3096), span(0x30a1, 0x30fa), span(0x4e00, 0x4e80), span(0xf900, 0xf920), span(0x300, 0x315), span(0x1d400, 0x1d420),
    span(0xff01, 0xff5e), span(0x2160, 0x2188), span(0x2460, 0x2473), span(0xb2, 0xb3), span(0xbc, 0xbe), span(0x2190, 0x21ff),
    span(0x1f600, 0x1f640), ['\u200d', '\ufe0f', '\u200b', '\u200c', '\ufeff', '\u00ad', '\u2060', '\u180e'], span(0x1f1e6, 0x1f1ff),
    span(0xe000, 0xe010), ['\ufffd', '\uffff', '\u{10ffff}', '\u0378'], ['\u0000', '\u0001', '\u001b', '\u007f', '\u009f'],
    ['\u0130', '\u0131', '\u017f', '\u1e9e', '\u00df', '\u01c5', '\u03c2', '\u0345', '\u1fb3', '\ufb01', '\u212a', '\u212b'],
    ["'s", "'S", "'t", "'re", "'VE", "'ll", "'Ll", "'d", "'m", "\u2019s", "'\u017f"], ['<|endoftext|>', '<|im_start|>', '[MASK]', '<s>', '</s>', '<unk>'],
    ['\u2581', '\u0120', '##', '<0x41>', '<0x0A>'], [' the', ' of', ' and', 'ing', ' hello', ' World', 'Attention']];

function randomText() {
    let s = '', n = 1 + random(30), few = random(3) ? KINDS : Array.from({length: 3}, () => KINDS[random(KINDS.length)]);
    while (n--) {
        const kind = few[random(few.length)];
        for (let run = 1 + random(random(4) ? 3 : 9); run; run--) s += kind[random(kind.length)];
    }
    return s;
}

function texts() {
    const list = ['', ' ', '  ', '\n', '\n\n', ' \n', '\r\n', 'a', ' a', 'a ', '  a', "don't", "I'M", 'x'.repeat(3000), '1234567890'.repeat(9),
        'Hello, y\'all! How are you \u{1F601} ?', 'caf\u00e9 cafe\u0301', '\u00c5\u212b A\u030a', 'f\u00fcr   das\tWort\u00a0', ' '.repeat(200) + 'x'];
    for (const f of ['README.md', 'examples/block.c', 'LICENSE']) if (fs.existsSync(f)) list.push(fs.readFileSync(f, 'utf8').slice(0, 20000));
    for (const f of ['wikitext-2/valid.txt', 'code/mbpp.jsonl', 'books/tinyshakespeare.txt']) {
        const whole = path.join('../shared/data', f);
        if (fs.existsSync(whole)) list.push(fs.readFileSync(whole, 'utf8').slice(0, 60000));
    }
    for (let i = 0; i < 400; i++) list.push(randomText());
    return list.map(s => s.toWellFormed ? s.toWellFormed() : s);
}

// ------------------------------------------------------------------ ours

// All texts through our encoder and decoder, in one run: [{ids, text}]. With `saved` the tokenizer is written there before, and read again.
function ours(file, list, saved) {
    const parts = [];
    for (const text of list) {
        const bytes = Buffer.from(text), size = Buffer.alloc(4);
        size.writeUInt32LE(bytes.length);
        parts.push(size, bytes);
    }
    const run = spawnSync(OURS, saved ? [file, saved] : [file], {input: Buffer.concat(parts), maxBuffer: 1 << 29});
    if (run.status !== 0) throw new Error(String(run.stderr).trim() || 'our program ended with ' + (run.signal || run.status));
    let at = 0;
    const number = () => (at += 4, run.stdout.readUInt32LE(at - 4));
    return list.map(() => {
        const ids = Array.from({length: number()}, number), n = number();
        at += n;
        return {ids, text: run.stdout.toString('utf8', at - n, at)};
    });
}

const shown = s => JSON.stringify(s.length > 60 ? s.slice(0, 60) + '..' : s).replace(/[^ -~]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));

// What differs, with the ids from there on and, for one of ours, what stands before
function different(text, mine, theirs) {
    const at = mine.findIndex((x, i) => x !== theirs[i]), i = at < 0 ? mine.length : at;
    return mine.length === theirs.length && at < 0 ? '' :
        `${shown(text)}: id ${i}: ours ${mine.slice(i, i + 5)}, theirs ${theirs.slice(i, i + 5)} (${mine.length} and ${theirs.length})`;
}

// Compares all texts; prints the first few that differ.
async function compare(name, mine, theirEncode, theirDecode, list) {
    const first = [];
    let bad = 0;
    for (let i = 0; i < list.length; i++) {
        let problem = '';
        try {
            problem = different(list[i], mine[i].ids, Array.from(await theirEncode(list[i])));
            if (!problem && theirDecode && mine[i].ids.length) {
                const theirs = await theirDecode(mine[i].ids);
                if (mine[i].text !== theirs && mine[i].text.replaceAll('\ufeff', '') !== theirs) // some take byte order marks away
                    problem = `decoded: ours ${shown(mine[i].text)}, theirs ${shown(theirs)}`;
            }
        } catch (e) { problem = shown(list[i]) + ': ' + e.message; }
        if (problem && first.push(problem)) bad++;
    }
    say(`${name} (${list.length} texts)`, bad ? `${bad} texts differ\n    ` + first.slice(0, +process.env.SHOW || 4).join('\n    ') : '');
}

// ------------------------------------------------------------------ tokenizer.json from tiktoken's ranks

const BYTES = (() => { // byte -> the character that stands for it
    const own = b => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    let n = 0;
    return Array.from({length: 256}, (_, b) => String.fromCharCode(own(b) ? b : 256 + n++));
})();

// The patterns that Hugging Face's conversions have, which look for contractions in any case
const ANY = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const LISTED = "('s|'S|'t|'T|'re|'rE|'Re|'RE|'ve|'vE|'Ve|'VE|'m|'M|'ll|'lL|'Ll|'LL|'d|'D)";

function fromRanks(packed) {
    const rank = new Map(), merges = [], vocab = {};
    for (const line of packed.bpe_ranks.split('\n').filter(x => x)) {
        const [, offset, ...tokens] = line.split(' ');
        tokens.forEach((t, i) => rank.set(Buffer.from(t, 'base64').toString('latin1'), Number(offset) + i));
    }
    const order = [...rank].sort((a, b) => a[1] - b[1]);
    for (const [token, id] of order) {
        vocab[[...token].map(c => BYTES[c.charCodeAt(0)]).join('')] = id;
        if (token.length === 1) continue;
        const parts = [...token]; // merged by all that came before, two parts are left
        while (parts.length > 2) {
            let best = -1, least = id;
            for (let i = 0; i + 1 < parts.length; i++) {
                const r = rank.get(parts[i] + parts[i + 1]);
                if (r !== undefined && r < least) least = r, best = i;
            }
            if (best < 0) break;
            parts.splice(best, 2, parts[best] + parts[best + 1]);
        }
        if (parts.length === 2) merges.push(parts.map(p => [...p].map(c => BYTES[c.charCodeAt(0)]).join('')));
    }
    for (const [content, id] of Object.entries(packed.special_tokens)) vocab[content] = id;
    return {version: '1.0', truncation: null, padding: null,
        added_tokens: Object.entries(packed.special_tokens).map(([content, id]) =>
            ({id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true})),
        normalizer: null,
        pre_tokenizer: {type: 'Sequence', pretokenizers: [
            {type: 'Split', pattern: {Regex: packed.pat_str.split(LISTED).join(ANY)}, behavior: 'Isolated', invert: false},
            {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false}]},
        post_processor: null, decoder: {type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false},
        model: {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false,
            byte_fallback: false, ignore_merges: true, vocab, merges}};
}

// ------------------------------------------------------------------ the comparisons

async function main() {
    const list = texts();
    // JavaScript's \s has U+FEFF and lacks U+0085, unlike everybody else's; that of contractions in any case differs as well
    const plain = list.filter(t => !/<\||'\u017f|\u0085|\ufeff/.test(t));
    const tiktoken = load('js-tiktoken/lite'), gpt = load('gpt-tokenizer'), hugging = load('tokenizers'), js = load('@huggingface/tokenizers');
    const safely = (name, file, ...more) => {
        try { return ours(file, ...more); } catch (e) { say(name, e.message); return null; }
    };
    for (const [name, file] of [['gpt2', '../shared/data/tokenizers/gpt2'], ['cl100k_base', ''], ['o200k_base', '']]) {
        const ranks = tiktoken && load('js-tiktoken/ranks/' + name);
        const made = file || path.join(FOLDER, name + '.json');
        if (!ranks || (file && !fs.existsSync(file))) continue;
        if (!file) fs.writeFileSync(made, JSON.stringify(fromRanks(ranks.default || ranks)));
        const t = new tiktoken.Tiktoken(ranks.default || ranks), mine = safely(name, made, plain);
        if (!mine) continue;
        await compare(name + ', js-tiktoken', mine, s => t.encode(s, [], []), ids => t.decode(ids), plain);
        const g = gpt && require('gpt-tokenizer/encoding/' + (file ? 'r50k_base' : name));
        if (g) await compare(name + ', gpt-tokenizer', mine, s => g.encode(s), ids => g.decode(ids), plain);
    }
    const files = [FOLDER, MODELS].flatMap(folder => fs.readdirSync(folder).map(f => path.join(folder, f)));
    for (const file of files.filter(f => f.endsWith('.json')).sort()) {
        const f = path.basename(file), saved = file + '.saved';
        const mine = safely(f, file, list), again = mine && safely(f + ', saved and read', file, list, saved);
        if (!again) continue;
        say(f + ', saved and read', JSON.stringify(mine) === JSON.stringify(again) ? '' : 'other ids');
        for (const form of [file, saved]) {
            const text = fs.readFileSync(form, 'utf8'), name = path.basename(form);
            if (hugging) {
                const t = hugging.Tokenizer.fromString(text);
                t.disableTruncation(), t.disablePadding();
                await compare(name + ', tokenizers', mine, async s => (await t.encode(s, null, {addSpecialTokens: false})).getIds(),
                    // an added token that is normalized it writes as it was looked for, "\u2581<s>"
                    /"normalized": ?true/.test(text) ? null : ids => t.decode(ids, false), list);
            }
            if (js && !/"Precompiled"|"Unigram"[^]*"byte_fallback": ?true/.test(text)) { // which it does not do
                const t = new js.Tokenizer(JSON.parse(text), {});
                const some = list.map((s, i) => i).filter(i => plain.includes(list[i]));
                await compare(name + ', @huggingface/tokenizers', some.map(i => mine[i]), s => t.encode(s, {add_special_tokens: false}).ids,
                    ids => t.decode(ids, {skip_special_tokens: false, clean_up_tokenization_spaces: false}), some.map(i => list[i]));
            }
        }
    }
    console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
    process.exit(failed ? 1 : 0);
}
main();
