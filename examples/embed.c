/* Writes a file, such as a trained model, as a C array, so that a program carries it along:
       cc -O2 examples/embed.c -o embed
       ./embed tiny.safetensors model > model.h

   A program reads it where it lies, with or without a file system (CMHA_NO_FILES):
       #include "model.h"
       cmha_buffer files[2] = {{"model", model, sizeof model, 0, 0, 0}}; // the second, empty, ends the list
       cmha_context_config config = {0};
       config.files = cmha_buffers(files);
       if (cmha_context_init(&context, &config) || cmha_model_open(&net, &context, "model"))
           puts(cmha_error(&context));

   A microcontroller needs no more than an allocator (cmha_context_config.allocator); what only infers is
   compiled with CMHA_INFERENCE_ONLY, CMHA_NO_FILES and CMHA_NO_CBLAS. tests/device.c does all of it. */
#include "tools/regular.h"

#include <ctype.h>
#include <string.h>

static const char usage[] = "usage: embed FILE NAME > NAME.h, NAME a C identifier\n";

/* Could no array have this name? Words of C up to C23, and what C keeps for itself. */
static int reserved(const char *name) {
    static const char words[] =
        " alignas alignof asm auto bool break case char const constexpr continue default do double else enum "
        "extern false float for goto if inline int long nullptr register restrict return short signed sizeof "
        "static static_assert struct switch thread_local true typedef typeof typeof_unqual union unsigned "
        "void volatile while ";
    char wanted[32];
    if (*name == '_' && (name[1] == '_' || isupper((unsigned char)name[1]))) return 1;
    return snprintf(wanted, sizeof wanted, " %s ", name) < (int)sizeof wanted && strstr(words, wanted);
}

int main(int argc, char **argv) {
    FILE *file = argc == 3 ? regular_open(argv[1]) : NULL;
    const char *name = argc == 3 ? argv[2] : "";
    long bytes = 0;
    int help = argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"));
    int c, bad = !*name || isdigit((unsigned char)*name);
    if (help) printf("%sWrites FILE, such as a trained model, as a C array. Example:\n"
                     "  build/embed tiny.safetensors model > model.h\n", usage);
    if (help) return fclose(stdout) ? perror("embed"), 1 : 0;
    for (; *name; name++) bad |= !isalnum((unsigned char)*name) && *name != '_';
    if (argc != 3 || bad) return fputs(usage, stderr), 2;
    if (reserved(argv[2])) return fprintf(stderr, "embed: C keeps this name for itself: %s\n", argv[2]), 2;
    if (!file) return fprintf(stderr, "embed: cannot open %s%s\n", argv[1], regular_fault(argv[1])), 1;
    c = getc(file);
    if (c == EOF && !ferror(file)) return fprintf(stderr, "embed: %s is empty\n", argv[1]), 1;
    printf("/* %s, written by examples/embed.c */\n", argv[2]);
    printf("#ifdef __GNUC__\n__attribute__((aligned(64)))\n#endif\n");
    printf("static const unsigned char %s[] = {", argv[2]);
    for (; c != EOF; c = getc(file), bytes++) printf("%s%d,", bytes % 24 ? "" : "\n", c);
    printf("\n};\n");
    if (ferror(file)) return perror(argv[1]), 1;
    fclose(file);
    return fclose(stdout) ? perror("embed"), 1 : 0;
}
