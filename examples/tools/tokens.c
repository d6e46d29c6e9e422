/* Text to tokens and back, with the tokenizers of other people's models (--help lists everything):
       cc -O2 -I. examples/tools/tokens.c -o build/tokens -lutf8proc -lcjson -lopenblas -lm
       build/tokens encode TOKENIZER < text > ids
       build/tokens encode --lines --special TOKENIZER < pairs > ids-and-types
       build/tokens decode TOKENIZER < ids > text
       build/tokens inspect TOKENIZER
       build/tokens train --size 8192 --special '<|endoftext|>' --out tokenizer.json text.txt */
#define CMHA_IMPLEMENTATION
#include "cmha.h"

#define PROGRAM "tokens"
#define NO_ROWS
#include "options.h"
#include "bpe.h"
#include "text.h"

static tokenizer tok;

static void help(void) {
    puts("tokens COMMAND TOKENIZER [OPTION...]: texts to numbers of tokens and back; learns a tokenizer\n"
         "\n"
         "  TOKENIZER         tokenizer.json, vocab.txt, llama2.c's .bin, GGUF; or a folder with\n"
         "                    tokenizer.json, encoder.json + vocab.bpe, vocab.json + merges.txt or\n"
         "                    vocab.txt\n"
         "  encode            reads a text, prints the numbers of its tokens, one a line\n"
         "    --binary        2 bytes each, little-endian, of vocabularies above 65,536 tokens 4\n"
         "    --special       with what the tokenizer's template adds: <s>, [CLS] .. [SEP]\n"
         "    --plain         special tokens in the text are text like any other\n"
         "    --lines         each line is a text, or two with one tab between: prints a line with their\n"
         "                    ids, a tab and the type of each (BERT's segment)\n"
         "    --fit           with --lines: cut and filled up as truncation and padding of the file say\n"
         "  decode            reads numbers, prints their text\n"
         "    --binary        as above\n"
         "    --skip-special  leaves special tokens out\n"
         "  inspect           identity, kind, size, special tokens, longest token, first merges\n"
         "    --ids           instead: every token, one a line: number, a blank, what it decodes to\n"
         "  train             learns a byte-level BPE: build/tokens train OPTION.. TEXT..\n"
         "    --size N        tokens: special ones, 256 bytes, the rest learnt (8192)\n"
         "    --special TEXT  a special token; may come again; they are the first ids\n"
         "    --split NAME    gpt2, llama3, qwen2, o200k, tekken: cut as there; none: at line ends (gpt2)\n"
         "    --min-count N   pairs that come less often are not merged (2)\n"
         "    --out FILE      the tokenizer.json to be written\n"
         "    TEXT            a file; - is the standard input\n"
         "\n"
         "  --help            this page");
    exit(end_help("build/tokens encode tokenizer.json < text.txt > ids.txt"));
}

/* Ends the program where an argument asks for that page or for the version. */
static void asked(const char *argument) {
    if (!strcmp(argument, "--help") || !strcmp(argument, "-h")) help();
    if (!strcmp(argument, "--version")) end_with_version();
}

/* Writes ids as asked for. */
static void write_ids(const tokenizer_ids *ids, int width) {
    for (size_t i = 0; i < ids->n; i++) {
        uint32_t id = (uint32_t)ids->at[i];
        if (!width) printf("%lu\n", (unsigned long)id);
        else for (int k = 0; k < width; k++) putchar((int)(id >> 8 * k & 255));
    }
}

static void encode(int special, int width) {
    static char part[1 << 16];
    tokenizer_stream stream;
    tokenizer_ids ids = {NULL, 0, 0};
    size_t n;
    tokenizer_stream_open(&stream, &tok, special);
    while (!ferror(stdout) && (n = fread(part, 1, sizeof part, stdin)) > 0) {
        must(tokenizer_stream_put(&stream, part, n, &ids, failure));
        write_ids(&ids, width), ids.n = 0;
    }
    if (ferror(stdin)) complain(1, "cannot read the standard input", "");
    must(tokenizer_stream_end(&stream, &ids, failure));
    write_ids(&ids, width);
    tokenizer_ids_free(&ids), tokenizer_stream_close(&stream);
}

/* Prints the ids and types of a line: of a text, or of two with a tab between. */
static void encode_line(int special, char *line, size_t n, size_t number) {
    char where[80];
    tokenizer_ids ids = {NULL, 0, 0}, types = {NULL, 0, 0};
    tokenizer_texts texts = {line, NULL, n, 0};
    char *tab = n ? (char *)memchr(line, '\t', n) : NULL;
    if (tab) texts.n_a = (size_t)(tab - line), texts.b = tab + 1, texts.n_b = n - texts.n_a - 1;
    snprintf(where, sizeof where, "line %zu has more than two texts, which a tab parts", number);
    if (tab && memchr(texts.b, '\t', texts.n_b)) complain(1, where, "");
    must(tokenizer_encode_texts(&tok, &texts, special, &ids, &types, failure));
    for (size_t i = 0; i < ids.n; i++) printf(i ? " %ld" : "%ld", (long)ids.at[i]);
    putchar('\t');
    for (size_t i = 0; i < ids.n; i++) printf(i ? " %ld" : "%ld", (long)types.at[i]);
    putchar('\n');
    tokenizer_ids_free(&ids), tokenizer_ids_free(&types);
}

static void encode_lines(int special) {
    input_line line = {NULL, 0, 0};
    for (size_t number = 1; !ferror(stdout) && next_line(&line); number++)
        encode_line(special, line.n ? line.at : (char *)"", line.n, number);
    free(line.at);
}

/* The next number of the standard input; 0 at its end. */
static int next_id(int width, int32_t *id) {
    char digits[24];
    uint64_t n = 0;
    int c = getchar(), i = 0;
    if (width) {
        for (; i < width && c != EOF; i++, c = i < width ? getchar() : c) n |= (uint64_t)c << 8 * i;
        if (i && i < width) complain(1, "the last number is cut off", "");
    } else {
        while (c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == ',') c = getchar();
        for (; c != EOF && c != ' ' && c != '\n' && c != '\r' && c != '\t' && c != ',' && i < 23;
             c = getchar())
            digits[i++] = (char)c;
        digits[i] = 0;
        if (strlen(digits) < (size_t)i) complain(1, "a zero byte is not the number of a token", "");
        if (i == 23) complain(1, "not the number of a token: ", digits);
        if (i && !text_whole(digits, &n)) complain(1, "not the number of a token: ", digits);
    }
    if (ferror(stdin)) complain(1, "cannot read the standard input", "");
    if (!i) return 0;
    if (n >= tok.size || !(tok.flags[n] & TOKENIZER_THERE)) {
        snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
        complain(1, "there is no token of the number ", digits);
    }
    *id = (int32_t)n;
    return 1;
}

/* Prints what tokens decode to: on a terminal it steers nothing. */
static void put_text(const char *s, size_t n, int terminal) {
    if (terminal) text_show(s, n, 1);
    else fwrite(s, 1, n, stdout);
}

static void decode(int skip, int width) {
    const int terminal = isatty(1);
    tokenizer_decoder state = {0, {0}, 0, 0, 0, 0};
    char *out = (char *)malloc(tok.longest + 8);
    int32_t id;
    if (!out) complain(1, "no memory", "");
    state.skip_special = skip;
    while (!ferror(stdout) && next_id(width, &id))
        put_text(out, tokenizer_decode(&tok, &state, id, out), terminal);
    put_text(out, tokenizer_decode_end(&state, out), terminal);
    free(out);
}

/* Prints the bytes of a token so that one sees them and no terminal does anything else. */
static void show(int32_t id) {
    size_t at = tok.begin[id], end = tok.begin[id + 1], length;
    uint32_t c;
    for (; at < end; at += length) {
        length = text_decode(tok.bytes + at, end - at, &c);
        if (c == '\\' || c == '\n' || c == '\t') printf("\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : '\\');
        else if (!text_steers(c)) fwrite(tok.bytes + at, 1, length, stdout);
        else
            for (size_t i = 0; i < length; i++) printf("\\x%02x", (unsigned)(unsigned char)tok.bytes[at + i]);
    }
}

static void list_tokens(void) {
    for (int32_t id = 0; (size_t)id < tok.size; id++)
        if (tok.flags[id] & TOKENIZER_THERE) printf("%ld ", (long)id), show(id), putchar('\n');
}

static void inspect(void) {
    static const char *const kinds[] = {"BPE", "WordPiece", "Unigram", "WordLevel"};
    const char *const names[] = {"bos", "eos", "pad", "unk", "cls", "sep", "mask"};
    const int32_t ids[] = {tok.bos, tok.eos, tok.pad, tok.unk, tok.cls, tok.sep, tok.mask};
    size_t longest = 0;
    printf("%-12s%s\n", "identity", tok.identity);
    printf("%-12s%s%s%s\n", "kind", tok.byte_level ? "byte-level " : "", kinds[tok.kind],
           tok.byte_fallback ? " with byte fallback" : "");
    printf("%-12s%zu tokens, %zu merges, %zu added\n", "size", tok.size, tok.n_merges, tok.n_added);
    for (int i = 0; i < 7; i++)
        if (ids[i] >= 0) printf("%-12s%ld ", names[i], (long)ids[i]), show(ids[i]), putchar('\n');
    for (size_t i = 0; i < tok.size; i++)
        if (tokenizer_length(&tok, (int32_t)i) > tokenizer_length(&tok, (int32_t)longest)) longest = i;
    printf("%-12s%zu bytes: %zu ", "longest", tokenizer_length(&tok, (int32_t)longest), longest);
    show((int32_t)longest), putchar('\n');
    for (size_t i = 0; i < tok.n_merges && i < 8; i++) {
        printf("%-12s", i ? "" : "merges"), show(tok.merges[i].left), printf(" + ");
        show(tok.merges[i].right), putchar('\n');
    }
}

/* ---- Training ---- */

enum { SPECIALS = 1000 };

/* Where a word stands among n words; n: nowhere. */
static size_t place(const char *word, const char *const *words, size_t n) {
    size_t i = 0;
    while (i < n && strcmp(words[i], word)) i++;
    return i;
}

static uint64_t whole(const char *name, const char *digits) {
    uint64_t n = 0;
    if (!text_whole(digits, &n) || n < 1 || n > INT32_MAX)
        complain(2, name, " is a whole number from 1, below 2^31");
    return n;
}

/* Counts the words of a text; returns its bytes. */
static double read_text(bpe_trainer *trainer, const char *path) {
    static char part[1 << 16];
    int standard = !strcmp(path, "-");
    FILE *file = standard ? stdin : regular_open(path);
    double bytes = 0;
    size_t n;
    if (!file && *regular_fault(path)) complain(1, path, regular_fault(path));
    if (!file) complain(1, "cannot open ", path);
    while ((n = fread(part, 1, sizeof part, file)) > 0)
        must(bpe_put(trainer, part, n, failure)), bytes += (double)n;
    if (ferror(file)) complain(1, "cannot read ", standard ? "the standard input" : path);
    if (!standard) fclose(file);
    must(bpe_end(trainer, failure));
    return bytes;
}

static void learn(const bpe_options *o, char **paths, int n_paths, const char *out) {
    bpe_trainer trainer;
    double bytes = 0, begun = seconds();
    must(bpe_open(&trainer, o, failure));
    for (int i = 0; i < n_paths; i++) bytes += read_text(&trainer, paths[i]);
    if (!(bytes > 0)) complain(1, "there is no text to learn from in ", paths[0]);
    must(bpe_finish(&trainer, &tok, failure));
    must(tokenizer_save(&tok, out, failure));
    fprintf(stderr, "tokens: %zu tokens, %zu merges, from %.0f bytes, %zu different words, in %.2f s: %s\n",
            tok.size, tok.n_merges, bytes, trainer.words.n, seconds() - begun, tok.identity);
    if (tok.size < o->size)
        fprintf(stderr, "tokens: not %zu: no other pair came %lu times\n", o->size,
                (unsigned long)o->min_count);
    bpe_close(&trainer), tokenizer_close(&tok);
}

static void train(int argc, char **argv) {
    static const char *const names[] = {"--size", "--special", "--split", "--min-count", "--out"};
    static const char *const splits[] = {"gpt2", "llama3", "qwen2", "o200k", "tekken", "none"};
    const size_t n_names = sizeof names / sizeof *names, n_splits = sizeof splits / sizeof *splits;
    static const char *special[SPECIALS];
    bpe_options o = {8192, 2, "gpt2", special, 0};
    const char *out = NULL;
    unsigned once = 0; /* the bits of names that have come, and may not again */
    int n_paths = 0; /* the paths move to the front of argv */
    for (int i = 0; i < argc; i++) {
        char *name = argv[i];
        if (*name != '-' || !name[1]) {
            argv[n_paths++] = argv[i];
            continue;
        }
        asked(name);
        const char *value = strchr(name, '=') ? cut_value(name) : argv[++i];
        size_t which = place(name, names, n_names);
        if (which == n_names) no_such("train has no option", name, names, n_names);
        if (!value) complain(2, "see --help; a value is missing after ", name);
        if (once >> which & 1) refuse_again(name, value);
        if (strcmp(name, "--special") != 0) once |= 1u << which;
        if (!strcmp(name, "--size")) o.size = (size_t)whole(name, value);
        else if (!strcmp(name, "--min-count")) o.min_count = whole(name, value);
        else if (!strcmp(name, "--split")) o.split = value;
        else if (!strcmp(name, "--out")) out = value;
        else if (o.n_special == SPECIALS) complain(2, "there are too many of ", name);
        else special[o.n_special++] = value;
    }
    if (place(o.split, splits, n_splits) == n_splits)
        no_such("there is no --split", o.split, splits, n_splits);
    if (!out) complain(2, "see --help; train needs --out, the file to be written", "");
    if (!n_paths) complain(2, "see --help; train needs a text, - is the standard input", "");
    refuse_replacing("--out", out, (const char *const *)argv, (size_t)n_paths);
    must(text_may_save(out, failure));
    learn(&o, argv, n_paths, out);
}

int main(int argc, char **argv) {
    static const char *const commands[] = {"encode", "decode", "inspect", "train"};
    static const char *const names[] = {"--binary", "--special", "--plain", "--fit", "--lines",
                                        "--skip-special", "--ids", "--help", "--version"};
    const char *command = argc > 1 ? argv[1] : "", *path = NULL;
    int binary = 0, special = 0, skip = 0, ids = 0, lines = 0, width;
    text_open_streams();
    if (!*command) help();
    asked(command);
    if (!strcmp(command, "train")) return train(argc - 2, argv + 2), end_program(0);
    for (int i = 2; i < argc; i++) {
        asked(argv[i]);
        if (!strcmp(argv[i], "--binary")) binary = 1;
        else if (!strcmp(argv[i], "--special")) special |= TOKENIZER_TEMPLATE;
        else if (!strcmp(argv[i], "--plain")) special |= TOKENIZER_PLAIN;
        else if (!strcmp(argv[i], "--fit")) special |= TOKENIZER_FIT;
        else if (!strcmp(argv[i], "--lines")) lines = 1;
        else if (!strcmp(argv[i], "--skip-special")) skip = 1;
        else if (!strcmp(argv[i], "--ids")) ids = 1;
        else if (*argv[i] == '-')
            no_such("there is no option", argv[i], names, sizeof names / sizeof *names);
        else if (path) complain(2, "one tokenizer is enough, what is ", argv[i]);
        else path = argv[i];
    }
    if (strcmp(command, "encode") && strcmp(command, "decode") && strcmp(command, "inspect"))
        no_such("there is no command", command, commands, sizeof commands / sizeof *commands);
    if (!path) complain(2, "see --help; a tokenizer is missing after ", command);
    if (*command != 'e' && (lines || special))
        complain(2, "see --help; only encode has --special, --plain, --lines and --fit, not ", command);
    if (skip && *command != 'd') complain(2, "see --help; only decode has --skip-special, not ", command);
    if (ids && *command != 'i') complain(2, "see --help; only inspect has --ids, not ", command);
    if (binary && *command == 'i')
        complain(2, "see --help; only encode and decode have --binary, not ", command);
    if (lines && binary) complain(2, "see --help; --lines prints text, it does not go with ", "--binary");
    if (special & TOKENIZER_FIT && !lines) complain(2, "see --help; without --lines there is no ", "--fit");
    must(tokenizer_open(&tok, path, failure));
    width = !binary ? 0 : tok.size <= 65536 ? 2 : 4;
    if (*tok.note && *command != 'd' && !(special & TOKENIZER_FIT)) complain(0, "note: ", tok.note);
    if (*tok.otherwise && *command != 'd') complain(0, "note: ", tok.otherwise);
    if (lines) encode_lines(special);
    else if (*command == 'e') encode(special, width);
    else if (*command == 'd') decode(skip, width);
    else if (ids) list_tokens();
    else inspect();
    tokenizer_close(&tok);
    return end_program(0);
}
