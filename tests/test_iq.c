/* What signal.c reads with: raw samples, .npy, CSV, SigMF, WAV. */
#include "check.h"

#include "../examples/tools/iq.h"

enum { RAW, NPY, TABLE, META, WAV };
static char error[TEXT_ERROR];
static unsigned char file[4096];
static size_t length;
static iq_samples got;

static void put(const void *bytes, size_t n) {
    memcpy(file + length, bytes, n);
    length += n;
}

static void word(const char *text) { put(text, strlen(text)); }

/* Adds n numbers 0.5, -1, 1.5, -2, .. as floats or doubles, the lowest byte first. */
static void numbers(size_t n, int wide) {
    for (size_t i = 0; i < n; i++) {
        double value = 0.5 * (double)(i + 1) * (i % 2 ? -1 : 1);
        float narrow = (float)value;
        uint64_t bits = 0;
        uint32_t low;
        memcpy(&bits, &value, 8);
        memcpy(&low, &narrow, 4);
        if (!wide) bits = low;
        for (int k = 0; k < (wide ? 8 : 4); k++) file[length++] = (unsigned char)(bits >> (8 * k));
    }
}

/* Begins a .npy file; the header says so much. */
static void npy(const char *descr, const char *order, const char *shape) {
    char header[256];
    int n = snprintf(header, sizeof header, "{'descr': %s, 'fortran_order': %s, 'shape': %s, }\n", descr,
                     order, shape);
    length = 0;
    put("\x93NUMPY\1\0", 8);
    file[length++] = (unsigned char)n;
    file[length++] = 0;
    put(header, (size_t)n);
}

/* Reads a copy of exactly that size, so that a byte beyond it is noticed under a sanitizer. */
static int reads(int kind, int type, size_t n) {
    unsigned char *copy = (unsigned char *)check_alloc(n, 1);
    int done;
    memcpy(copy, file, n);
    memset(&got, 0, sizeof got);
    error[0] = 0;
    if (kind == RAW) done = iq_raw(&got, copy, n, type, "a\nname", error);
    else if (kind == NPY) done = iq_npy(&got, copy, n, "a\nname", error);
    else if (kind == WAV) done = iq_wav(&got, copy, n, "a\nname", error);
    else if (kind == TABLE) done = iq_csv(&got, (const char *)copy, n, "a\nname", error);
    else done = iq_sigmf((const char *)copy, n, &type, "a\nname", error);
    if (kind != META) CHECK(done ? got.z && got.n : !got.z && !got.n);
    if (!done) CHECK(error[0] && !strchr(error, '\n'));
    free(copy);
    return done ? 1 + type : 0;
}

/* Are these the samples of numbers()? */
static int right(size_t n) {
    int same = got.n == n;
    for (size_t i = 0; same && i < 2 * n; i++)
        same = fabs((double)got.z[i] - 0.5 * (double)(i + 1) * (i % 2 ? -1 : 1)) < 1e-6;
    iq_close(&got);
    return same;
}

static int says(const char *text) { return strstr(error, text) != NULL; }

static void raw(void) {
    static const unsigned char small[4] = {0x80, 0x40, 0xFF, 0}, middle[4] = {0, 0x80, 0, 0x40};
    length = 0;
    numbers(6, 0);
    for (size_t i = 0; i < length; i++) {
        CHECK_THAT((reads(RAW, IQ_F32, i) != 0) == (i && i % 8 == 0), "cut at %zu", i);
        iq_close(&got);
    }
    CHECK(reads(RAW, IQ_F32, length) && right(3));
    file[11] = 0x7F, file[10] = 0xC0; /* NaN */
    CHECK(!reads(RAW, IQ_F32, length) && says("sample 2 is no number"));
    file[10] = 0x80, file[9] = file[8] = 0; /* infinity */
    CHECK(!reads(RAW, IQ_F32, length) && says("sample 2 is no number"));
    length = 0, numbers(4, 1);
    CHECK(reads(RAW, IQ_F64, length) && right(2));
    length = 0, put(small, 4);
    CHECK(reads(RAW, IQ_I8, 4) && got.n == 2 && got.z[0] + 1 == 0 && got.z[1] - 0.5f == 0);
    CHECK_NEAR(got.z[2], -1.0 / 128, 0);
    iq_close(&got);
    length = 0, put(middle, 4);
    CHECK(reads(RAW, IQ_I16, 4) && got.n == 1 && got.z[0] + 1 == 0 && got.z[1] - 0.5f == 0);
    iq_close(&got);
}

static void arrays(void) {
    static const char *const bad[][4] = {
        {"'<i2'", "False", "(3, 2)", "dtype '<i2'"}, {"'>c8'", "False", "(3,)", "dtype '>c8'"},
        {"[('i', '<f4'), ('q', '<f4')]", "False", "(3,)", "dtype [("}, {"'<c8'", "True", "(3,)", "C order"},
        {"'<c8'", "False", "(3, 1)", "not a shape"}, {"'<f4'", "False", "(3,)", "not a shape"},
        {"'<f4'", "False", "(2, 3)", "not a shape"}, {"'<c8'", "False", "()", "not a shape"},
        {"'<c8'", "False", "(-1,)", "another size"}, {"'<c8'", "False", "(4,)", "another size"},
        {"'<c8'", "False", "(2,)", "another size"},
        {"'<c8'", "False", "(2305843009213693955,)", "another size"},
        {"'<c8'", "False", "(0,)", "not a shape"}, {"'<c8'", "False", "3", "not a shape"}};
    size_t i, whole;
    npy("'<c8'", "False", "(3,)"), numbers(6, 0);
    CHECK(reads(NPY, 0, length) && right(3));
    for (i = 0, whole = length; i < whole; i++) CHECK_THAT(!reads(NPY, 0, i), "cut at %zu", i);
    npy("'<c16'", "False", "(3,)"), numbers(6, 1);
    CHECK(reads(NPY, 0, length) && right(3));
    npy("'<f4'", "False", "(3, 2)"), numbers(6, 0);
    CHECK(reads(NPY, 0, length) && right(3));
    npy("'<f8'", "False", "(3, 2)"), numbers(6, 1);
    CHECK(reads(NPY, 0, length) && right(3));
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        npy(bad[i][0], bad[i][1], bad[i][2]), numbers(6, 0);
        CHECK_THAT(!reads(NPY, 0, length) && says(bad[i][3]), "array %zu: %s", i, error);
    }
    for (i = 0; i < 3000; i++) { /* any byte may be anything */
        npy("'<c8'", "False", "(3,)"), numbers(6, 0);
        file[check_below(length)] = (unsigned char)check_below(256);
        file[check_below(length)] = (unsigned char)check_below(256);
        reads(NPY, 0, length);
        iq_close(&got);
    }
}

static int table(const char *text) {
    length = 0;
    word(text);
    return reads(TABLE, 0, length);
}

static void tables(void) {
    static const char *const bad[][2] = {
        {"", "an empty file"}, {"\n", "no two columns"}, {"i,q", "no samples"}, {"i,q\n\n", "no samples"},
        {"i\n1\n", "q one is missing"}, {"t,re\n1,2\n", "im one is missing"}, {"x\n1\n", "no two columns"},
        {"1,2\n3,4\n", "no header"}, {"i,q\n1,2\n3\n", "line 3 has no two numbers in columns 1 and 2"},
        {"i,q\n1,x\n", "line 2"}, {"i,q\n1,\n", "line 2"}, {"i,q\n1,2\n1,nan\n", "sample 2"},
        {"i,q\n1,inf\n", "sample 1"}, {"i,q\n1,1e16\n", "sample 1"}, {"i;q\n1;2\n", "no two columns"}};
    CHECK(table("i,q\n0.5,-1\n1.5,-2\n2.5,-3\n") && right(3));
    CHECK(table("t,\"Q\",\"I\"\r\n0,-1,0.5\r\n1,-2, 1.5 \r\n\r\n2,-3,2.5") && right(3));
    CHECK(table("\xEF\xBB\xBFim,re\n-1,\"0.5\"\n-2,1.5\n") && right(2));
    CHECK(table("x,y,z\n0.5,-1,9\n1.5,-2,9\n") && right(2));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_THAT(!table(bad[i][0]) && says(bad[i][1]), "table %zu: %s", i, error);
    for (int i = 0; i < 3000; i++) {
        length = 0, word("i,q\n0.5,-1\n1.5,-2\n");
        file[check_below(length)] = (unsigned char)check_below(256);
        file[check_below(length)] = (unsigned char)check_below(256);
        reads(TABLE, 0, length);
        iq_close(&got);
    }
}

static int meta(const char *text) {
    length = 0;
    word(text);
    return reads(META, IQ_NONE, length) - 1;
}

static void sigmf(void) {
#ifdef WITH_TOKENIZER
    static const char *const bad[][2] = {
        {"", "no JSON"}, {"{\"global\":", "no JSON"}, {"[]", "no core:datatype"}, {"{}", "no core:datatype"},
        {"{\"global\":{\"core:datatype\":3}}", "no core:datatype"},
        {"{\"global\":{\"core:datatype\":\"cf32_be\"}}", "core:datatype cf32_be is not"},
        {"{\"global\":{\"core:datatype\":\"ci8\",\"core:num_channels\":2}}", "more than one channel"},
        {"{\"global\":{\"core:datatype\":\"ci8\",\"core:num_channels\":\"1\"}}", "more than one channel"},
        {"{\"global\":{\"core:datatype\":\"ci8\"},\"captures\":[{},{\"core:header_bytes\":4}]}",
         "bytes between"},
        {"{\"global\":{\"core:datatype\":\"ci8\",\"core:trailing_bytes\":4}}", "bytes between"}};
    CHECK(meta("{\"global\":{\"core:datatype\":\"cf32_le\"}}") == IQ_F32);
    CHECK(meta("{\"captures\":[{\"core:sample_start\":0}],\"global\":{\"core:num_channels\":1,"
               "\"core:datatype\":\"ci16_le\"}}") == IQ_I16);
    CHECK(meta("{\"global\":{\"core:datatype\":\"ci8\"}}") == IQ_I8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_THAT(meta(bad[i][0]) < 0 && says(bad[i][1]), "meta %zu: %s", i, error);
#else
    CHECK(meta("{\"global\":{\"core:datatype\":\"ci8\"}}") < 0 && says("apt-get install"));
#endif
}

static void number(uint32_t value, int bytes) {
    for (; bytes--; value >>= 8) file[length++] = (unsigned char)value;
}

/* Begins a WAV file up to n bytes of samples; `real` is the format that an extensible one extends. */
static void wav(uint32_t form, uint32_t real, uint32_t channels, uint32_t bits, uint32_t n) {
    uint32_t size = form == 0xFFFE ? 40 : 16, step = channels * bits / 8;
    length = 0;
    word("RIFF"), number(1000, 4), word("WAVEauxi"), number(3, 4), number(0, 4);
    word("fmt "), number(size, 4);
    number(form, 2), number(channels, 2), number(2400000, 4), number(2400000 * step, 4), number(step, 2);
    number(bits, 2);
    if (size == 40) number(22, 2), number(bits, 2), number(3, 4), number(real, 2);
    if (size == 40) put("\0\0\0\0\x10\0\x80\0\0\xAA\0\x38\x9B\x71", 14);
    word("data"), number(n, 4);
}

/* A WAV file of numbers of so many bits: the least, a half, minus the smallest step, 0. */
static void whole_numbers(uint32_t form, uint32_t bits) {
    const uint32_t least = UINT32_C(1) << (bits - 1), flip = bits == 8 ? 128 : 0;
    const uint32_t values[4] = {least, least / 2, 2 * least - 1, 0};
    wav(form, 1, 2, bits, bits / 2);
    for (int i = 0; i < 4; i++) number(values[i] ^ flip, (int)bits / 8);
    CHECK_THAT(reads(WAV, 0, length) && got.n == 2, "%u bits: %s", (unsigned)bits, error);
    if (got.n != 2) return;
    CHECK_NEAR(got.z[0], -1, 0);
    CHECK_NEAR(got.z[1], 0.5, 0);
    CHECK_NEAR(got.z[2], -1 / (double)least, 0);
    CHECK_NEAR(got.z[3], 0, 0);
    iq_close(&got);
}

static void waves(void) {
    static const struct { uint32_t form, real, channels, bits; const char *what; } bad[] = {
        {1, 1, 1, 16, "there is 1"}, {1, 1, 3, 16, "there are 3"}, {3, 3, 1, 32, "there is 1"},
        {1, 1, 0, 16, "there are 0"}, {1, 1, 2, 12, "neither 8"}, {1, 1, 2, 64, "neither 8"},
        {3, 3, 2, 64, "neither 8"}, {3, 3, 2, 16, "neither 8"}, {2, 2, 2, 4, "neither 8"},
        {7, 7, 2, 8, "neither 8"}, {0xFFFE, 7, 2, 8, "neither 8"}, {1, 1, 2, 0, "neither 8"}};
    size_t i, whole;
    for (uint32_t bits = 8; bits <= 32; bits += 8) whole_numbers(1, bits), whole_numbers(0xFFFE, bits);
    wav(0xFFFE, 3, 2, 32, 24), numbers(6, 0);
    CHECK(reads(WAV, 0, length) && right(3));
    wav(3, 3, 2, 32, 24), numbers(6, 0);
    for (i = 0, whole = length; i < whole; i++) CHECK_THAT(!reads(WAV, 0, i), "cut at %zu", i);
    CHECK(reads(WAV, 0, length) && right(3));
    for (i = 0; i < sizeof bad / sizeof *bad; i++) {
        wav(bad[i].form, bad[i].real, bad[i].channels, bad[i].bits, 24), numbers(6, 0);
        CHECK_THAT(!reads(WAV, 0, length) && says(bad[i].what), "wave %zu: %s", i, error);
    }
    wav(0xFFFE, 1, 2, 16, 24), file[length - 10] ^= 1, numbers(6, 0); /* extends something of others */
    CHECK(!reads(WAV, 0, length) && says("neither 8"));
    wav(1, 1, 2, 24, 24), file[44] = 8, numbers(6, 0); /* 24 bits in 4 bytes each */
    CHECK(!reads(WAV, 0, length) && says("neither 8"));
    wav(3, 3, 2, 32, 20), numbers(6, 0);
    CHECK(!reads(WAV, 0, length) && says("ends within a sample (20 bytes, 8 a sample)"));
    wav(3, 3, 2, 32, 0);
    CHECK(!reads(WAV, 0, length) && says("no samples"));
    wav(3, 3, 2, 32, 24), numbers(6, 0), file[length - 1] = 0x7F, file[length - 2] = 0xC0; /* NaN */
    CHECK(!reads(WAV, 0, length) && says("sample 3 is no number"));
    for (i = 0; i < 3000; i++) { /* any byte may be anything */
        wav(i % 2 ? 1 : 0xFFFE, 1, 2, 24, 24), numbers(6, 0);
        file[check_below(length)] = (unsigned char)check_below(256);
        file[check_below(length)] = (unsigned char)check_below(256);
        reads(WAV, 0, length);
        iq_close(&got);
    }
}

static void files(void) {
    static const char *const names[] = {"x.WAV", "x", ".npy", "x.cf32x", "-"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK(!iq_load(&got, names[i], error) && says("not called"));
    CHECK(!iq_load(&got, "there/is/no.cf32", error) && says("cannot open"));
    CHECK(!iq_load(&got, "there/is/no.sigmf-data", error) && says("no.sigmf-meta"));
}

int main(void) {
    raw();
    arrays();
    tables();
    sigmf();
    waves();
    files();
    return check_end();
}
