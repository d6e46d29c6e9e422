"""tests/peers.py PEERS FOLDER: trains small SentencePiece models (Debian: python3-sentencepiece), writes their vocabularies as Hugging
Face and as GGUF hold them, and compares our ids and decoded texts (by tests/peers.c) with SentencePiece's own; and llama.cpp's vocabularies (NAME.gguf, NAME.gguf.inp and
NAME.gguf.out of its folder models) as far as they are put into FOLDER. tests/peers.sh calls this.
Prints N passed, N failed, N skipped."""
import glob, json, os, random, struct, subprocess, sys

PEERS, FOLDER = sys.argv[1:3]
try:
    import sentencepiece as spm
except ImportError:
    print('SKIP sentencepiece is not there (Debian, Ubuntu: apt-get install python3-sentencepiece)\n0 passed, 0 failed, 1 skipped')
    sys.exit(0)

META = '\u2581'
SPECIAL = {'unk': '<unk>', 'bos': '<s>', 'eos': '</s>'}
random.seed(7)


def corpus():
    """A text in several scripts: our own pages, and what lies in ../shared where it does."""
    files = ['README.md', 'examples/README.md', 'tests/README.md', 'LICENSE', '../shared/data/books/tinyshakespeare.txt']
    text = ''.join(open(f, encoding='utf-8').read()[:300000] for f in files if os.path.exists(f))
    return text + '\nÄpfel, Öl und Übermut: größer, straße.\nпривет мир, привет всем\n日本語の文字と漢字\nনমস্কার café naïve 😀\n' * 30


def texts():
    kinds = ['abcdefghij', 'XYZ', '0123456789', ' ', ' ', '\n', '\t ', '.,;:!?-', 'äöüß', 'приветмр', '日本語漢字', '😀😁',
             '\u0301\u0308', '\u00a0\u2003\u3000', 'éèñ', '\u200b\u200d', '\U0010fffd\ue000', 'Ⅷ½ﬁ', '한국어', META]
    out = ['', ' ', '  ', 'a', ' a', 'a ', '  a  b  ', 'Hello world', 'hello\nworld', '\n', META, META * 3, 'x' * 500, 'the ' * 50,
           '日本語', '😀', 'a\u0301', 'caf\u00e9'] + [line for line in corpus().split('\n')[:60]]
    for _ in range(300):
        few = random.sample(kinds, random.randint(1, 6))
        out.append(''.join(random.choice(random.choice(few)) for _ in range(random.randint(1, 60))))
    out.append(corpus()[:1500]) # in a longer one sums of scores in float, as theirs are, differ from those in double
    return out


def gguf(path, sp, model):
    """A GGUF file of the vocabulary alone."""
    def string(s):
        b = s.encode()
        return struct.pack('<Q', len(b)) + b

    def kind(i):
        return 2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else 1

    n = sp.get_piece_size()
    array = {'tokens': (8, b''.join(string(sp.id_to_piece(i)) for i in range(n))),
             'scores': (6, struct.pack('<%df' % n, *[sp.get_score(i) for i in range(n)])),
             'token_type': (5, struct.pack('<%di' % n, *[kind(i) for i in range(n)]))}
    pairs = [string('tokenizer.ggml.model') + struct.pack('<I', 8) + string(model)]
    pairs += [string('tokenizer.ggml.' + k) + struct.pack('<IIQ', 9, t, n) + b for k, (t, b) in array.items()]
    for k, i in [('bos', sp.bos_id()), ('eos', sp.eos_id()), ('unknown', sp.unk_id())]:
        pairs.append(string('tokenizer.ggml.%s_token_id' % k) + struct.pack('<II', 4, i))
    for k, yes in [('add_bos_token', 0), ('add_eos_token', 0), ('add_space_prefix', 1)]:
        pairs.append(string('tokenizer.ggml.' + k) + struct.pack('<IB', 7, yes))
    with open(path, 'wb') as f:
        f.write(b'GGUF' + struct.pack('<IQQ', 3, 0, len(pairs)) + b''.join(pairs))


def added(sp):
    return [{'id': i, 'content': sp.id_to_piece(i), 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': False,
             'special': True} for i in range(sp.get_piece_size()) if sp.is_unknown(i) or sp.is_control(i)]


def whole(sp, normalizer, pre_tokenizer, decoder, model):
    return {'version': '1.0', 'truncation': None, 'padding': None, 'added_tokens': added(sp), 'normalizer': normalizer,
            'pre_tokenizer': pre_tokenizer, 'post_processor': None, 'decoder': decoder, 'model': model}


def sequence(kind, *steps):
    return {'type': 'Sequence', kind: list(steps)}


BLANKS = sequence('normalizers', {'type': 'Prepend', 'prepend': META}, {'type': 'Replace', 'pattern': {'String': ' '}, 'content': META})
BACK = sequence('decoders', {'type': 'Replace', 'pattern': {'String': META}, 'content': ' '}, {'type': 'ByteFallback'}, {'type': 'Fuse'},
                {'type': 'Strip', 'content': ' ', 'start': 1, 'stop': 0})


def bpe_json(sp):
    """As transformers writes Llama 2's: merges found again from the pieces, in the order of their scores."""
    pieces = [sp.id_to_piece(i) for i in range(sp.get_piece_size())]
    vocab, merges = {p: i for i, p in enumerate(pieces)}, []
    for i, piece in enumerate(pieces):
        if sp.is_byte(i) or sp.is_control(i) or sp.is_unknown(i):
            continue
        local = [(piece[:k], piece[k:]) for k in range(1, len(piece)) if piece[:k] in vocab and piece[k:] in vocab]
        local.sort(key=lambda x: (vocab[x[0]], vocab[x[1]]))
        merges += [(sp.get_score(i), a, b) for a, b in local]
    merges.sort(key=lambda x: -x[0])
    return whole(sp, BLANKS, None, BACK,
                 {'type': 'BPE', 'dropout': None, 'unk_token': '<unk>', 'continuing_subword_prefix': None, 'end_of_word_suffix': None,
                  'fuse_unk': True, 'byte_fallback': any(sp.is_byte(i) for i in range(len(pieces))), 'ignore_merges': False,
                  'vocab': vocab, 'merges': ['%s %s' % (a, b) for _, a, b in merges]})


def unigram_json(sp):
    n = sp.get_piece_size()
    return whole(sp, BLANKS, None, BACK, {'type': 'Unigram', 'unk_id': sp.unk_id(), 'byte_fallback': any(sp.is_byte(i) for i in range(n)),
                                          'vocab': [[sp.id_to_piece(i), sp.get_score(i)] for i in range(n)]})


def ours(file, list_of_texts, saved=None):
    """All texts through our encoder and decoder: [(ids, bytes)]; with `saved` the tokenizer is written there and read again before."""
    data = b''.join(struct.pack('<I', len(t.encode())) + t.encode() for t in list_of_texts)
    r = subprocess.run([PEERS, file] + ([saved] if saved else []), input=data, capture_output=True)
    if r.returncode:
        raise RuntimeError(r.stderr.decode(errors='replace').strip() or 'our program ended with %d' % r.returncode)
    out, at = [], 0
    for _ in list_of_texts:
        n, = struct.unpack_from('<I', r.stdout, at)
        ids = list(struct.unpack_from('<%dI' % n, r.stdout, at + 4))
        at += 4 + 4 * n
        n, = struct.unpack_from('<I', r.stdout, at)
        out.append((ids, r.stdout[at + 4:at + 4 + n]))
        at += 4 + n
    return out


def compare(name, file, list_of_texts, want, decode=None):
    """want[i]: the ids of a text; decode(ids): their text."""
    bad = []
    try:
        mine = ours(file, list_of_texts)
        if ours(file, list_of_texts, file + '.saved') != mine:
            bad.append('saved as tokenizer.json and read again it gives others')
    except RuntimeError as e:
        refused = 'is not known' in str(e)
        print('%s %s: %s' % ('SKIP' if refused else 'FAIL', name, e))
        return None if refused else False
    for text, (ids, back), theirs in zip(list_of_texts, mine, want):
        if ids != theirs:
            i = next((i for i, (a, b) in enumerate(zip(ids, theirs)) if a != b), min(len(ids), len(theirs)))
            bad.append('%r: id %d: ours %s, theirs %s' % (text[:60], i, ids[i:i + 5], theirs[i:i + 5]))
        elif decode and back.decode(errors='replace') != decode(ids):
            bad.append('%r decoded: ours %r, theirs %r' % (text[:60], back[:60], decode(ids)[:60]))
    if bad:
        print('FAIL %s: %d of %d texts differ\n    %s' % (name, len(bad), len(list_of_texts), '\n    '.join(bad[:int(os.environ.get('SHOW', 4))])))
    return not bad


def golden(path):
    """llama.cpp's models/ggml-vocab-NAME.gguf with its .inp and .out: texts and their ids"""
    inp = open(path + '.inp', encoding='utf-8', newline='').read().split('\n__ggml_vocab_test__\n')
    out = [[int(x) for x in line.split()] for line in open(path + '.out').read().split('\n')]
    return compare(os.path.basename(path), path, inp[:len(out)], out)


def main():
    TEXTS = texts()
    train = os.path.join(FOLDER, 'corpus.txt')
    with open(train, 'w', encoding='utf-8') as f:
        f.write(corpus())
    passed = failed = skipped = 0
    for kind, bytes_too in [('bpe', True), ('bpe', False), ('unigram', True), ('unigram', False)]:
        name = kind + ('_bytes' if bytes_too else '')
        prefix = os.path.join(FOLDER, 'sp_' + name)
        spm.SentencePieceTrainer.train(input=train, model_prefix=prefix, model_type=kind, vocab_size=2000, byte_fallback=bytes_too,
                                       normalization_rule_name='identity', remove_extra_whitespaces=False, character_coverage=0.999,
                                       minloglevel=2, max_sentence_length=100000, num_threads=1)
        sp = spm.SentencePieceProcessor(model_file=prefix + '.model')
        for form in ['json', 'gguf']:
            file = prefix + '.' + form
            if form == 'gguf':
                gguf(file, sp, 'llama' if kind == 'bpe' else 't5')
            else:
                with open(file, 'w', encoding='utf-8') as f:
                    json.dump(bpe_json(sp) if kind == 'bpe' else unigram_json(sp), f, ensure_ascii=False)
            fine = compare('%s as %s' % (name, form), file, TEXTS, [sp.encode(t) for t in TEXTS], sp.decode if bytes_too else None)
            passed, failed = passed + (fine is True), failed + (fine is False)
    for path in sorted(glob.glob(os.path.join(FOLDER, '*.gguf.inp'))):
        if os.path.exists(path[:-4]):
            fine = golden(path[:-4])
            passed, failed, skipped = passed + (fine is True), failed + (fine is False), skipped + (fine is None)
    print('%d passed, %d failed, %d skipped' % (passed, failed, skipped))
    return failed > 0


sys.exit(main())
