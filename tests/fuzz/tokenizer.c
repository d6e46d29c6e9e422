/* A tokenizer's file and texts for it. Input: a file that begins with { or GGUF; or a byte of flags (1: with
   what the template adds; the others choose where the stream cuts the text), two bytes with the size of the
   file, the file, a text. Whatever is read must encode and decode any text, piece by piece as at once, in
   memory and time that its size bounds, and come back the same when it is saved. */
#include "fuzz.h"
#include "mutate.h"

#include "examples/tokenizer.h"

/* A step of every kind, with every field, and what else a tokenizer.json is made of */
static const char *const pieces[] = {
    "{\"type\":\"NFC\"}", "{\"type\":\"NFD\"}", "{\"type\":\"NFKC\"}", "{\"type\":\"NFKD\"}",
    "{\"type\":\"Lowercase\"}", "{\"type\":\"StripAccents\"}",
    "{\"type\":\"Strip\",\"strip_left\":true,\"strip_right\":true}",
    "{\"type\":\"Prepend\",\"prepend\":\"\xE2\x96\x81\"}", "{\"type\":\"Prepend\",\"prepend\":\"aa\"}",
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xE2\x96\x81\"}",
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"ABCDEFGHIJKLMNOP\"}",
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"aa\"},\"content\":\"\"}",
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"}",
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\"    \"}",
    "{\"type\":\"BertNormalizer\",\"clean_text\":true,\"handle_chinese_chars\":true,"
    "\"strip_accents\":null,\"lowercase\":true}",
    "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"\"}",
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}",
    "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",\"prepend_scheme\":\"first\",\"split\":true}",
    "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"MergedWithNext\",\"invert\":true}",
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\s\"},\"behavior\":\"Contiguous\",\"invert\":false}",
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\p{N}\"},\"behavior\":\"Removed\"}",
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(a+)+$|\\\\p{L}*b|(?=c)\"},\"behavior\":\"Contiguous\"}",
    "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a|aa|(?:b?)*)+\\\\s\"},\"behavior\":\"Removed\"}",
    "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"b\"}", "{\"type\":\"BertPreTokenizer\"}",
    "{\"type\":\"Whitespace\"}", "{\"type\":\"WhitespaceSplit\"}",
    "{\"type\":\"Punctuation\",\"behavior\":\"MergedWithPrevious\"}",
    "{\"type\":\"Digits\",\"individual_digits\":true}",
    "{\"type\":\"ByteFallback\"}", "{\"type\":\"Fuse\"}",
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":1}",
    "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false}",
    "{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}",
    "{\"type\":\"BertProcessing\",\"cls\":[\"[CLS]\",0],\"sep\":[\"[SEP]\",1]}",
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[0,1]}}}",
    "{\"type\":\"RobertaProcessing\",\"cls\":[\"<s>\",0],\"sep\":[\"</s>\",2]}",
    "{\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":1}}],\"pair\":[{\"Sequence\":{\"id\":\"B\"}},"
    "{\"SpecialToken\":{\"id\":\"s\",\"type_id\":2}},{\"Sequence\":{\"id\":\"A\",\"type_id\":7}}]}",
    "{\"max_length\":5,\"strategy\":\"LongestFirst\",\"direction\":\"Left\",\"stride\":0}",
    "{\"max_length\":9,\"strategy\":\"OnlySecond\",\"direction\":\"Right\"}",
    "{\"strategy\":{\"Fixed\":12},\"direction\":\"Left\",\"pad_to_multiple_of\":8,\"pad_id\":1,"
    "\"pad_type_id\":3,\"pad_token\":\"a\"}",
    "{\"strategy\":\"BatchLongest\",\"pad_to_multiple_of\":5}",
    "{\"type\":\"Sequence\",\"normalizers\":[],\"pretokenizers\":[],\"decoders\":[],\"processors\":[]}",
    "{\"id\":5,\"content\":\"aa\",\"single_word\":true,\"lstrip\":true,\"rstrip\":true,\"normalized\":true,"
    "\"special\":false}",
    "{\"id\":3,\"content\":\" \",\"normalized\":false,\"special\":true}",
    "{\"type\":\"Unigram\",\"unk_id\":0,\"byte_fallback\":true,\"vocab\":[[\"<unk>\",0],[\"a\",-1e30]]}",
    "{\"type\":\"WordPiece\",\"unk_token\":\"a\",\"max_input_chars_per_word\":3,\"vocab\":{\"a\":0,\"##b\""
    ":1}}",
    "{\"type\":\"BPE\",\"unk_token\":\"a\",\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":true,"
    "\"merges_tie\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}",
    "[\"a\",-1]", "[\"\xE2\x96\x81\",-2.5]", "\"a b\"", "[\"a\",\"b\"]", "{\"bos\":0,\"eos\":1,\"unk\":2}",
    NULL};
static const char *const words[] = {
    "type", "model", "vocab", "merges", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
    "decoder",
    "normalizers", "pretokenizers", "decoders", "processors", "content", "pattern", "String", "Regex",
    "prepend",
    "replacement", "prepend_scheme", "never", "always", "behavior", "Removed", "invert", "special_tokens",
    "ids",
    "id", "special", "normalized", "lstrip", "rstrip", "single_word", "unk_token", "unk_id", "byte_fallback",
    "continuing_subword_prefix", "end_of_word_suffix", "max_input_chars_per_word", "special_ids", "dropout",
    "fuse_unk", "ignore_merges", "merges_tie", "single", "cls", "sep", "start", "stop", "suffix", "prefix",
    "cleanup", "BPE", "WordPiece", "Unigram", "Sequence", "a", "b", " ", "ab", "aaaaaaaa", "[UNK]", "<unk>",
    "<s>",
    "longest", "truncation", "padding", "pair", "max_length", "strategy", "OnlyFirst", "LongestFirst",
    "BatchLongest", "Fixed", "direction", "Left", "Right", "pad_to_multiple_of", "pad_id", "pad_type_id",
    "type_id",
    "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens", "tokenizer.ggml.scores",
    "tokenizer.ggml.token_type", "tokenizer.ggml.merges", "tokenizer.ggml.bos_token_id",
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.add_bos_token",
    "tokenizer.ggml.add_eos_token", "tokenizer.ggml.add_space_prefix",
    "tokenizer.ggml.remove_extra_whitespaces",
    "tokenizer.ggml.precompiled_charsmap", "gpt2", "llama", "t5", "bert", "gpt-2", "llama-bpe", "qwen2",
    "gpt-4o",
    "minerva-7b", "smaug-bpe", NULL};

/* Texts that tokenizers stumble over */
static const struct { const char *text; size_t n; } nasty[] = {
#define NASTY(text) {text, sizeof text - 1}
    NASTY(""), NASTY(" "), NASTY("\0"), NASTY("a\0b\0\0"),
    NASTY("\xFF\xFE\xC3\x28\xF0\x9F\x98 \xED\xA0\x80\xE2\x96"),
    NASTY("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    "aaaaaaaa"),
    NASTY("  \t\n\r\n   \xC2\xA0\xE2\x80\xA8\xE3\x80\x80 a  b   c"),
    NASTY("a b c ab abc the don't I'LL 12345 6,789.01"),
    NASTY("e\xCC\x81\xCC\xA7\xCC\x81\xCC\xA7\xCC\x81\xCC\x81\xCC\x81 A\xCC\x8A \xEF\xB7\xBA\xEF\xAC\x83"
    "\xC4\xB0\xE1\xBA\x9E"),
    NASTY("\xE6\x97\xA5\xE6\x9C\xAC\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xE2\x96\x81\xE2\x96\x81 <"
    "/w> ## <0x0A><s>[UNK]"),
    NASTY("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8\xEA\xB0\x80\xE2\x84\xAB\xEF\xBC\xA1 \xEF\xBF\xBD\xEF\xBF"
    "\xBF\xF4\x8F\xBF\xBF"),
    NASTY("\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n            x            \n"),
    NASTY("b.b,b!b?b-b'b\"b(b)b[b]b{b}b") };
enum { NASTY_TEXTS = sizeof nasty / sizeof *nasty, LONG_TEXT = 1 << 16 };

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
    static const mutate_language language = {pieces, words, NULL};
    mutate_state m = mutate_begin(seed, &language);
    size_t n, more;
    if (!size || *data == '{' || *data == 'G') return mutate_file(&m, data, size, most);
    n = size > 3 ? data[1] | (size_t)data[2] << 8 : 0;
    if (size > 65535 || n > size - 3 || n < 2 || mutate_below(&m, 4) == 0)
        return mutate_bytes(data, size, most);
    if (most > 65535) most = 65535;
    more = mutate_part(&m, data, size, most, 3, 3 + n);
    n = n + more - size;
    data[1] = (uint8_t)n;
    data[2] = (uint8_t)(n >> 8);
    return more;
}

static unsigned char *copy(const uint8_t *from, size_t n) { /* of exactly this size, for AddressSanitizer */
    unsigned char *to = (unsigned char *)malloc(n + !n);
    if (n) memcpy(to, from, n);
    return to;
}

static int32_t *exact(const tokenizer_ids *ids) { return (int32_t *)copy((uint8_t *)ids->at, ids->n * 4); }

/* Decodes ids one after another, each into a block of exactly what it may take. The text is the caller's. */
static tokenizer_bytes decode(const tokenizer *t, const int32_t *ids, size_t n, int skip_special) {
    tokenizer_decoder state;
    tokenizer_bytes text;
    char *rest = (char *)malloc(8);
    memset(&state, 0, sizeof state), memset(&text, 0, sizeof text);
    state.skip_special = skip_special;
    NEED(tokenizer_put(&text, "", 0));
    for (size_t i = 0; i < n; i++) {
        char *out = (char *)malloc(t->longest + 8);
        size_t bytes = tokenizer_decode(t, &state, ids[i], out);
        NEED(bytes <= t->longest + 8);
        if (text.n < LONG_TEXT) NEED(tokenizer_put(&text, out, bytes));
        free(out);
    }
    n = tokenizer_decode_end(&state, rest);
    NEED(n <= 8 && tokenizer_put(&text, rest, n));
    free(rest);
    return text;
}

/* Every id there is and some that there are not, in an order of no meaning; the text is the caller's. */
static tokenizer_bytes decode_all(const tokenizer *t) {
    int32_t ids[300];
    size_t n = t->longest > 4096 ? 20 : 300;
    for (size_t i = 0; i < n; i++) {
        size_t among = i % 2 || t->size < 8 ? t->size : 8;
        ids[i] = (int32_t)(i * 7919 % among) - (i % 50 == 3);
        if (i % 50 == 0) ids[i] = INT32_MIN;
        if (i % 50 == 1) ids[i] = INT32_MAX;
        if (i % 50 == 2) ids[i] = (int32_t)t->size;
    }
    return decode(t, ids, n, 0);
}

static void encode(const tokenizer *t, const unsigned char *text, size_t n, unsigned flags) {
    char error[TOKENIZER_ERROR];
    tokenizer_ids whole, parts;
    tokenizer_stream s;
    size_t i, at = 0, cut, fine;
    int32_t *ids;
    memset(&whole, 0, sizeof whole), memset(&parts, 0, sizeof parts);
    fine = (size_t)tokenizer_encode(t, (const char *)text, n, (int)flags & 1, &whole, error);
    if (!fine) NEED(*error && !strchr(error, '\n'));
    for (i = 0; i < whole.n; i++) NEED(whole.at[i] >= 0 && (size_t)whole.at[i] < t->size);
    if (fine) {
        free(decode(t, whole.at, whole.n < 300 ? whole.n : 300, flags >> 1 & 1).at);
        tokenizer_stream_open(&s, t, 0);
        if (flags & 1) NEED(tokenizer_put_ids(&parts, &t->before));
        for (i = 1; at < n; at += cut, i++) {
            unsigned char *piece;
            cut = 1 + (flags >> 1) * i * 7 % 61;
            if (cut > n - at) cut = n - at;
            piece = copy(text + at, cut);
            fine = fine && tokenizer_stream_put(&s, (char *)piece, cut, &parts, error);
            free(piece);
        }
        fine = fine && tokenizer_stream_end(&s, &parts, error);
        if (!fine) NEED(strstr(error, "takes too long")); /* the clock of a pattern, not the text */
        if (flags & 1) NEED(tokenizer_put_ids(&parts, &t->after));
        tokenizer_stream_close(&s);
        ids = exact(&whole);
        NEED(!fine || (parts.n == whole.n && (!whole.n || !memcmp(ids, parts.at, whole.n * sizeof *ids))));
        free(ids);
    }
    tokenizer_ids_free(&whole), tokenizer_ids_free(&parts);
}

/* Words one by one get the ids of whole pieces. */
static void in_words(const tokenizer *t, const unsigned char *text, size_t n) {
    char error[TOKENIZER_ERROR];
    tokenizer whole = *t;
    tokenizer_ids a, b;
    memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
    whole.apart = 0;
    if (tokenizer_encode(t, (const char *)text, n, 0, &a, error)) {
        int fine = tokenizer_encode(&whole, (const char *)text, n, 0, &b, error);
        if (!fine) NEED(strstr(error, "takes too long"));
        NEED(!fine || (a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n * sizeof *a.at))));
    }
    tokenizer_ids_free(&a), tokenizer_ids_free(&b);
}

/* A text and a pair in their templates, cut and filled up. */
static void in_templates(const tokenizer *t, const unsigned char *text, size_t n, unsigned flags) {
    char error[TOKENIZER_ERROR];
    for (int k = 0; k < 4; k++) {
        int special = (flags & 1 ? TOKENIZER_TEMPLATE : 0) | (k & 1 ? TOKENIZER_FIT : 0);
        size_t middle = n / 3;
        tokenizer_texts texts = {(const char *)text, NULL, n, 0};
        tokenizer_ids ids, types;
        memset(&ids, 0, sizeof ids), memset(&types, 0, sizeof types);
        if (k & 2) texts.b = (const char *)text + middle, texts.n_a = middle, texts.n_b = n - middle;
        if (tokenizer_encode_texts(t, &texts, special, &ids, &types, error)) {
            NEED(ids.n == types.n);
            if (k & 1 && t->fit.cuts) {
                size_t most = t->fit.most > t->fit.least ? t->fit.most : t->fit.least;
                NEED(ids.n <= most + t->fit.multiple || (!t->fit.fills && ids.n <= t->fit.most));
            }
            if (k & 1 && t->fit.fills)
                NEED(ids.n >= t->fit.least && (!t->fit.multiple || ids.n % t->fit.multiple == 0));
            for (size_t i = 0; i < ids.n; i++) NEED(ids.at[i] >= 0 && (size_t)ids.at[i] < t->size);
        } else NEED(*error && !strchr(error, '\n') && !ids.n && !types.n);
        tokenizer_ids_free(&ids), tokenizer_ids_free(&types);
    }
}

/* What is saved reads back as the same. The text that would be in the file is enough. */
static void save(const tokenizer *t, const unsigned char *text, size_t n) {
    char error[TOKENIZER_ERROR];
    tokenizer again;
    tokenizer_bytes json, before, after;
    tokenizer_ids a, b;
    int fine;
    memset(&json, 0, sizeof json), memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);
    if (tokenizer_write(t, &json, error)) {
        if (!tokenizer_read(&again, json.at, json.n, FUZZ_PATH, error)) {
            fprintf(stderr, "%s\n%.*s\n", error, (int)json.n, json.at);
            abort();
        }
        NEED(!strcmp(t->identity, again.identity) && t->size == again.size && t->longest == again.longest);
        NEED(t->bos == again.bos && t->eos == again.eos && t->pad == again.pad && t->unk == again.unk);
        NEED(t->cls == again.cls && t->sep == again.sep && t->mask == again.mask);
        fine = tokenizer_encode(t, (const char *)text, n, 1, &a, error);
        *error = 0;
        if (fine != tokenizer_encode(&again, (const char *)text, n, 1, &b, error)) {
            NEED(!*error || strstr(error, "takes too long"));
            fine = 0;
        }
        NEED(!fine || (a.n == b.n && (!a.n || !memcmp(a.at, b.at, a.n * sizeof *a.at))));
        before = decode_all(t), after = decode_all(&again);
        NEED(before.n == after.n && !memcmp(before.at, after.at, before.n));
        free(before.at), free(after.at);
        tokenizer_close(&again);
    } else NEED(*error && !strchr(error, '\n'));
    free(json.at), tokenizer_ids_free(&a), tokenizer_ids_free(&b);
}

/* The text of the input, one that is nasty, and one time in 64 a long one of that. */
static void use(const tokenizer *t, const unsigned char *text, size_t n, size_t file, unsigned flags,
                uint64_t hash) {
    size_t which = (size_t)(hash >> 8) % NASTY_TEXTS, one = nasty[which].n, n_long = one ? LONG_TEXT : 0;
    unsigned char *given = copy((const uint8_t *)nasty[which].text, one);
    fuzz_cost_begin();
    encode(t, text, n, flags), encode(t, given, one, flags);
    in_words(t, text, n), in_words(t, given, one);
    fuzz_cost_end("texts", file + n + one, 64, 2048);
    if (t->fit.least <= 4096 && t->fit.multiple <= 4096)
        in_templates(t, n ? text : given, n ? n : one, flags);
    if (hash % 64 == 0 && n_long) {
        free(given);
        given = (unsigned char *)malloc(n_long);
        for (size_t i = 0; i < n_long; i++) given[i] = (unsigned char)nasty[which].text[i % one];
        fuzz_cost_begin();
        encode(t, given, n_long, flags), in_words(t, given, n_long);
        fuzz_cost_end("a long text", file + n_long, 64, 2048);
    }
    free(given);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char error[TOKENIZER_ERROR] = "";
    uint64_t hash = fuzz_hash(data, size);
    int alone = size > 4 && (*data == '{' || !memcmp(data, "GGUF", 4)), fine;
    unsigned flags = alone ? (unsigned)(hash >> 24 & 255) : size ? data[0] : 0;
    size_t begin = alone ? 0 : 3, n = size, rest, which = (size_t)(hash % NASTY_TEXTS);
    unsigned char *file, *text;
    tokenizer t;
    if (size < 3) return 0;
    if (!alone) n = data[1] | (size_t)data[2] << 8;
    if (n > size - begin) n = size - begin;
    rest = size - begin - n;
    file = copy(data + begin, n), text = copy(data + begin + n, rest);
    fuzz_cost_begin();
    fine = tokenizer_read(&t, file, n, FUZZ_PATH, error);
    fuzz_cost_end("a file", n, 64, 2048);
    if (fine) {
        memset(file, 0xAA, n), free(file); /* nothing of the file is needed any more */
        use(&t, text, rest, n, flags, hash);
        free(decode_all(&t).at);
        save(&t, text, rest);
        if (hash % 4 == 0)
            save(&t, (const unsigned char *)nasty[which].text, nasty[which].n);
        tokenizer_close(&t);
    } else fuzz_check_line(error), free(file);
    tokenizer_close(&t);
    free(text);
    return 0;
}
