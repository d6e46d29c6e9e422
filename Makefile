# make            every program and test, into build/          make train      train on the project's own header
# make test       the tests, in minutes                        make bench      measure this machine, into build/bench.json and .svg
# make test-all   also with other compilers and flags, under sanitizers, in several processes: what CI runs
# make own ROWS=my_rows.c     scores, layers, optimisers of your own in all programs, into build/own (examples/README.md)
# make docs       build/reference.html: every function, struct, field, and the papers' equations with links to the code
# make corpus     an English text, build/kjv.txt               make man        manual pages from the programs' --help, with help2man
# make install    header, for pkg-config, CMake; what is built of programs, manual pages, reference: PREFIX=/usr/local DESTDIR=
# make uninstall  removes what was installed
# make extensions  examples/extensions, one after another      make fuzz       hostile files, FUZZ_SECONDS=60 each parser
# make lib        build/libcmha.so, the library for examples/python/cmha.py and other languages
# make web        build/web/index.html, a page that trains a model in the browser, with emscripten
# make web-speed  its training step natively and, with node, in WebAssembly: tokens a second
# make mpi        build/train_mpi, which trains on several machines; MPICC=mpicc.mpich: with that MPI
# make signal-data  labelled radio signals, build/signal.safetensors, with liquid-dsp
# make platform-aarch64, -riscv64, -ppc64le, -s390x, -i386, -musl, -windows, -wasm, -cortex-m    cross-compile, run tests there (tests/README.md)
# make quick T=test_scores    one test (grad_.. too) with everything unoptimised: seconds after a change of cmha.h
# make rooms      lines and bytes of each room of cmha.h; fails on a new call of a later room
# make bits AGAINST=OLD.h    do all kinds of models compute the same bits with the header OLD.h? (float, double)
# make compilers  every standard and level of optimisation of gcc and clang
# make symbols    tests/symbols.txt after a change of the API that is meant
# make abi        what differs from the last version, with abidiff; tests/abi.known: what is meant
# make mutants    small wrong changes of cmha.h, each of which the tests must notice: ONLY=WORDS JOBS=2
# make tsan       the test of threads under ThreadSanitizer
# make evidence   what papers claim: repeats the quick claims   make evidence-all    every row that is missing: JOBS=2, tens of hours
# make evidence CLAIM=my_claim.c   the same of a claim of your own (bench/evidence/OWN.md); ROWS=my_rows.c with it
# make clean                                                    make analysis   clang-tidy, cppcheck, gcc -fanalyzer; each alone:
# make sanitize           the tests under ASan and UBSan                       make tidy, make cppcheck, make analyze
# make memcheck           the tests under valgrind             make coverage   how much of cmha.h the tests run
#
# BLAS, OpenMP and, for tokenizers, libutf8proc, libcjson and PCRE2, for WAV files libsndfile and libsamplerate are looked for, see build/config.mk. To choose instead:
#     make BLAS_CFLAGS="-I/opt/openblas/include" BLAS_LIBS="-L/opt/openblas/lib -lopenblas"
#     make BLAS_CFLAGS=-DCMHA_NO_CBLAS BLAS_LIBS=            (the built-in GEMM)
#     make OPENMP=                                           (one thread)
#     make TEXT_CFLAGS= TEXT_LIBS=                           (no tokenizers: without build/tokens, build/convert)
#     make SOUND_CFLAGS= SOUND_LIBS=                         (of WAV files build/spoken reads 8 kHz, 16 bits, mono alone)

B = build
PREFIX = /usr/local
# clang 19 counts enum { N = 4 } beside a double to -Wconversion
WARN = -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wno-enum-float-conversion
VERSION = $(shell awk '/define CMHA_VERSION_(MAJOR|MINOR|PATCH)/ { v = v s $$3; s = "." } END { print v }' cmha.h)

EXAMPLES = $(filter-out $(B)/signal_data $(B)/stream,$(patsubst examples/%.c,$(B)/%,$(wildcard examples/*.c)))
TOOLS = $(filter-out $(LEFT_OUT),$(patsubst examples/tools/%.c,$(B)/%,$(wildcard examples/tools/*.c)))
EXTENSIONS = $(patsubst examples/%.c,$(B)/%,$(wildcard examples/extensions/*.c))
UNITS = $(filter-out $(LEFT_OUT),$(patsubst tests/%.c,$(B)/%,$(wildcard tests/test_*.c)))
GRADS = $(filter-out $(LEFT_OUT),$(patsubst tests/%.c,$(B)/%,$(wildcard tests/grad_*.c)))
CONFORMANCE = $(if $(wildcard tests/conformance.c),$(B)/conformance $(B)/conformance-f64)
PORTABLE = $(B)/portable_files $(B)/portable_files-f64
# glibc has dlopen, which --rows FILE.so needs, in a library of its own before 2.34
DL := $(shell getconf GNU_LIBC_VERSION 2>/dev/null | awk '{ split($$2, v, "."); if (v[1] == 2 && v[2] < 34) print "-ldl" }')
DEFINES = $(if $(DL),-DWITH_DL) $(CPPFLAGS)
FLAGS = $(CFLAGS) $(OPENMP) $(WARN) $(BLAS_CFLAGS) -I. $(DEFINES)
COMPILE = $(CC) $(FLAGS)
LINK = $(LDFLAGS) $(BLAS_LIBS) $(DL) -lm
# Programs that load --rows FILE.so let it use the functions of cmha.h
EXPORT = $(if $(findstring NT,$(OS)),,-rdynamic)

# build/config.mk holds CFLAGS, OPENMP, BLAS_.., TEXT_.. and SOUND_.. as this machine and compiler allow. It is worked out at every
# call and rewritten only when the answer changes, so that a BLAS installed later is found and everything is rebuilt.
# What stands on the command line or is exported wins. Its files carry the number of the process: several makes
# may ask at once, and one that met another's answer would build everything again, in both.
GIVEN = $(foreach v,CFLAGS CPPFLAGS LDFLAGS OPENMP BLAS_CFLAGS BLAS_LIBS TEXT_CFLAGS TEXT_LIBS SOUND_CFLAGS SOUND_LIBS,$(if $(filter file undefined,$(origin $v)),,$v='$($v)'))
ifneq ($(filter-out clean corpus tsan fuzz compilers docs uninstall abi,$(or $(MAKECMDGOALS),all)),)
include $(B)/config.mk
endif

# What needs the libraries of tokenizers is left out where they are not
NEED_TEXT = $(addprefix $(B)/,tokens convert test_convert grad_convert $(basename $(notdir $(wildcard tests/test_tokenizer*.c))))
LEFT_OUT = $(if $(TEXT_LIBS),,$(NEED_TEXT))

all: $(EXAMPLES) $(TOOLS) $(EXTENSIONS) $(UNITS) $(GRADS) $(CONFORMANCE) $(PORTABLE) $(B)/bench $(if $(findstring NT,$(OS)),,$(B)/evidence $(B)/evidence_test)

define PROBE
mkdir -p $(B)
p=$(B)/probe.$$$$
code() { printf '%s\n' "$$1" > $$p.c; }
works() { $(CC) $$p.c -o $$p "$$@" >/dev/null 2>&1; }
code 'int main(void) { return 0; }'
optimise=-O3
for f in -march=native -mcpu=native; do if works -O3 $$f -Werror; then optimise="-O3 $$f"; break; fi; done
code '#include <omp.h>
int main(void) { return omp_get_max_threads() < 1; }'
openmp= threads='no OpenMP, one thread'
if works -fopenmp; then openmp=-fopenmp threads=OpenMP; fi
header='<cblas.h>'
blas() { code "#include $$header
int main(void) {
    float a = 1, c;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, 1, 1, 1, 1, &a, 1, &a, 1, 0, &c, 1);
    return c != 1; }"
    cflags=$$1 libs=$$2 name=$$3; works $$1 $$2 -lm; }
given="$(strip $(subst ",,$(GIVEN)))"
if case "$$given" in *BLAS_*) true;; *) false;; esac; then cflags= libs= name='what BLAS_CFLAGS and BLAS_LIBS say'
elif [ "$$(uname)" = Darwin ] && header='<Accelerate/Accelerate.h>' && blas '' '-framework Accelerate' Accelerate; then :
elif header='<cblas.h>' && pkg-config --exists openblas 2>/dev/null &&
    blas "$$(pkg-config --cflags openblas)" "$$(pkg-config --libs openblas)" 'OpenBLAS by pkg-config'; then :
elif blas '' -lopenblas 'OpenBLAS (-lopenblas, unknown to pkg-config)'; then :
elif blas -I/usr/include/openblas -lopenblas 'OpenBLAS (-lopenblas, unknown to pkg-config)'; then :
elif blas '' -lcblas 'CBLAS (-lcblas, as no OpenBLAS links)'; then :
else cflags=-DCMHA_NO_CBLAS libs=
    name='the built-in GEMM, as neither OpenBLAS nor CBLAS links (Debian, Ubuntu: apt-get install libopenblas-dev)'
fi
text_cflags= text_libs= text='; no tokenizers, so neither build/tokens nor build/convert'
text="$$text (Debian, Ubuntu: apt-get install libutf8proc-dev libcjson-dev)"
code '#include <cjson/cJSON.h>
#include <utf8proc.h>
int main(void) { return !utf8proc_version() || !cJSON_Version(); }'
if works -lutf8proc -lcjson; then text_cflags=-DWITH_TOKENIZER text_libs='-lutf8proc -lcjson' text=; fi
code '#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
int main(void) { return pcre2_config(PCRE2_CONFIG_VERSION, 0) < 0; }'
if [ -n "$$text_libs" ] && works -lpcre2-8; then
    text_cflags="$$text_cflags -DWITH_PCRE2" text_libs="$$text_libs -lpcre2-8"
elif [ -n "$$text_libs" ]; then
    text='; of tokenizers the known patterns alone (others, Debian, Ubuntu: apt-get install libpcre2-dev)'
fi
case "$$given" in *TEXT_*) text=;; esac
sound_cflags= sound_libs= sound='; WAV files of 8 kHz, 16 bits, mono alone'
sound="$$sound (Debian, Ubuntu: apt-get install libsndfile1-dev libsamplerate0-dev)"
code '#include <samplerate.h>
#include <sndfile.h>
int main(void) { return !sf_strerror(0) || !src_get_version(); }'
if works -lsndfile -lsamplerate; then sound_cflags=-DWITH_SOUND sound_libs='-lsndfile -lsamplerate' sound=; fi
case "$$given" in *SOUND_*) sound=;; esac
rm -rf $$p $$p.c $$p.dSYM
printf '%s\n' "# $(CC) $$given" \
    "CFLAGS ?= $$optimise" "OPENMP ?= $$openmp" "BLAS_CFLAGS ?= $$cflags" "BLAS_LIBS ?= $$libs" \
    "TEXT_CFLAGS ?= $$text_cflags" "TEXT_LIBS ?= $$text_libs" \
    "SOUND_CFLAGS ?= $$sound_cflags" "SOUND_LIBS ?= $$sound_libs" > $$p.mk
if cmp -s $$p.mk $(B)/config.mk; then rm $$p.mk; exit 0; fi
mv $$p.mk $(B)/config.mk
echo "cmha: matrix products by $$name; $$threads; $$optimise$$text$$sound$${given:+; given: $$given}"
endef
export PROBE

$(B)/config.mk: FORCE
	@CC='$(CC)' sh -c "$$PROBE"

# Each example and each tool compiles alone, as its first lines say; here they share the library as an object.
$(EXAMPLES): $(B)/%: examples/%.c $(B)/cmha.o $(wildcard examples/*.h examples/tools/*.h)
	$(COMPILE) $(TEXT_CFLAGS) -DCMHA_LINKED -o $@ $< $(B)/cmha.o $(TEXT_LIBS) $(LINK) $(EXPORT)

# What reads WAV files with libraries
$(B)/spoken $(B)/test_audio: private LINK += $(SOUND_LIBS)
$(B)/spoken $(B)/test_audio: private FLAGS += $(SOUND_CFLAGS)

$(TOOLS): $(B)/%: examples/tools/%.c $(B)/cmha.o $(wildcard examples/*.h examples/tools/*.h)
	$(COMPILE) $(TEXT_CFLAGS) -DCMHA_LINKED -o $@ $< $(B)/cmha.o $(TEXT_LIBS) $(LINK) $(EXPORT)

$(LEFT_OUT):
	@echo '$@ needs libutf8proc and libcjson: apt-get install libutf8proc-dev libcjson-dev (Debian, Ubuntu)' >&2; exit 1

$(B)/bench: $(wildcard bench/*.c) bench/bench.h $(wildcard examples/tools/*.h) $(B)/cmha.o
	$(COMPILE) -o $@ $(filter %.c,$^) $(B)/cmha.o $(LINK) $(EXPORT)

# What papers claim, measured: bench/evidence/README.md. Rows say the commit that rows.o was built from.
EVIDENCE = $(patsubst bench/evidence/%.c,$(B)/evidence.objects/%.o,$(wildcard bench/evidence/*.c))
# Pages and figures have the same digits whatever CFLAGS are
PAGES = findings figures report statistics
EVIDENCE_HEADERS = cmha.h $(wildcard bench/evidence/*.h examples/*.h examples/tools/*.h) $(B)/config.mk

$(EVIDENCE): $(B)/evidence.objects/%.o: bench/evidence/%.c $(EVIDENCE_HEADERS)
	@mkdir -p $(@D)
	$(COMPILE) $(TEXT_CFLAGS) $(if $(filter rows,$*),-include $(B)/commit.h) $(if $(filter $(PAGES),$*),-ffp-contract=off) \
	    -c -o $@ $<

$(B)/evidence.objects/rows.o: $(B)/commit.h

$(B)/evidence: $(EVIDENCE) $(B)/cmha.o
	$(COMPILE) -o $@ $^ $(TEXT_LIBS) $(LINK) $(EXPORT)

# The same program with a claim that takes no time, for tests/evidence.sh
$(B)/evidence_test: tests/evidence_dice.c bench/evidence/evidence.c \
        $(patsubst %,$(B)/evidence.objects/%.o,runs rows statistics findings figures report) $(EVIDENCE_HEADERS) $(B)/cmha.o
	$(COMPILE) '-DEVIDENCE_CLAIMS(X)=X(dice) X(grid) X(long)' -o $@ $(filter %.c %.o,$^) $(LINK) $(EXPORT)

ifdef CLAIM
# A claim of the user's own, FILE.c that defines evidence_claim_FILE, as bench/evidence/OWN.md says: its program, rows and pages lie in
# build/claims/FILE. ROWS=my_rows.c links scores, layers and optimisers that it compares; ARGS go to its `run`. What was measured with
# another ROWS does not count for this one: rows.c is the file as it was.
CLAIM_NAME = $(basename $(notdir $(CLAIM)))
CLAIM_AT = $(B)/claims/$(CLAIM_NAME)
CLAIM_PARTS = $(filter-out %/evidence.o %/questions.o,$(EVIDENCE)) $(if $(ROWS),$(B)/own/own_rows.o)

evidence: $(CLAIM_AT)/evidence
	@$(if $(ROWS),cp '$(ROWS)' $(CLAIM_AT)/rows.c)
	$< run --jobs $(or $(JOBS),2) $(ARGS)
	$< report
	@echo '$(CLAIM_AT)/results/*.md has the tables, $(CLAIM_AT)/README.md the answers'

$(CLAIM_AT)/evidence: FORCE $(CLAIM_PARTS) $(B)/cmha.o
	@test -f '$(CLAIM)' || { echo 'make evidence CLAIM=$(CLAIM): there is no such file' >&2; exit 1; }
	@grep -qs 'evidence_claim evidence_claim_$(CLAIM_NAME) *=' '$(CLAIM)' || \
	    { echo '$(CLAIM) does not define evidence_claim_$(CLAIM_NAME); see bench/evidence/OWN.md' >&2; exit 1; }
	@mkdir -p $(CLAIM_AT)
	@if test -n '$(ROWS)' && test -f $(CLAIM_AT)/rows.c && test -f $(CLAIM_AT)/results/$(CLAIM_NAME).csv && ! cmp -s '$(ROWS)' $(CLAIM_AT)/rows.c; then \
	    echo '$(ROWS) is not what $(CLAIM_AT)/results/$(CLAIM_NAME).csv was measured with; take that away' >&2; exit 1; fi
	$(CC) $(CFLAGS) -Wall -Wextra $(BLAS_CFLAGS) -I. $(CPPFLAGS) '-DEVIDENCE_CLAIMS(X)=X($(CLAIM_NAME))' -c -o $@.claim.o $(CLAIM)
	$(COMPILE) $(if $(ROWS),-DWITH_OWN_ROWS) '-DEVIDENCE_CLAIMS(X)=X($(CLAIM_NAME))' '-DEVIDENCE_FOLDER="$(CLAIM_AT)"' -o $@ \
	    bench/evidence/evidence.c $@.claim.o $(CLAIM_PARTS) $(B)/cmha.o $(TEXT_LIBS) $(LINK) $(EXPORT)
else
# Repeats the quick claims and looks whether the report is what the rows say. Both need the texts of bench/evidence/METHOD.md.
evidence: $(B)/evidence
	rm -rf $(B)/evidence.quick
	$(B)/evidence run --quick --jobs $(or $(JOBS),2) --results $(B)/evidence.quick/results
	$(B)/evidence check
	$(B)/evidence report --results $(B)/evidence.quick/results --report $(B)/evidence.quick
endif

evidence-all: $(B)/evidence
	$(B)/evidence run --jobs $(or $(JOBS),2)
	$(B)/evidence report
	$(B)/evidence check

$(B)/commit.h: FORCE
	@mkdir -p $(B); \
	    commit=$$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown; \
	    git diff --quiet HEAD -- cmha.h bench/evidence/*.[ch] examples 2>/dev/null || commit=$$commit+; \
	    echo "#define EVIDENCE_COMMIT \"$$commit\"" > $@.$$$$; \
	    if cmp -s $@.$$$$ $@; then rm $@.$$$$; else mv $@.$$$$ $@; fi

# The programs with rows of the user's own linked into them; which file it was is kept beside them.
OWN_EXAMPLES = $(addprefix $(B)/own/,train_tiny signal signal_next spoken forecast)
OWN_TOOLS = $(addprefix $(B)/own/,generate score classify rag look vectors fill)
OWN = $(OWN_EXAMPLES) $(OWN_TOOLS) $(B)/own/bench $(if $(findstring NT,$(OS)),,$(B)/own/evidence)
OWN_COMPILE = $(COMPILE) $(TEXT_CFLAGS) -DWITH_OWN_ROWS -DCMHA_LINKED -o $@
OWN_LINK = $(B)/own/own_rows.o $(B)/cmha.o $(TEXT_LIBS) $(LINK) $(EXPORT)

own: $(if $(wildcard $(ROWS)),$(OWN))
	@test -f '$(ROWS)' || { echo 'make own ROWS=FILE.c: the file that defines cmha_own_rows(), see examples/rows/my_rows.c' >&2; exit 1; }
	@echo "$(B)/own: $(notdir $(OWN))"

$(B)/own/rows.txt: FORCE
	@mkdir -p $(B)/own; echo '$(ROWS)' > $@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

$(B)/own/own_rows.o: $(ROWS) $(B)/own/rows.txt cmha.h examples/tools/own_rows.h $(B)/config.mk
	$(CC) $(CFLAGS) $(OPENMP) -Wall -Wextra $(BLAS_CFLAGS) -I. $(CPPFLAGS) -c -o $@ $(ROWS)

$(OWN_EXAMPLES): $(B)/own/%: examples/%.c $(B)/own/own_rows.o $(B)/cmha.o $(wildcard examples/*.h examples/tools/*.h)
	$(OWN_COMPILE) $< $(OWN_LINK)

$(B)/own/spoken: private LINK += $(SOUND_LIBS)
$(B)/own/spoken: private FLAGS += $(SOUND_CFLAGS)

$(OWN_TOOLS): $(B)/own/%: examples/tools/%.c $(B)/own/own_rows.o $(B)/cmha.o $(wildcard examples/*.h examples/tools/*.h)
	$(OWN_COMPILE) $< $(OWN_LINK)

$(B)/own/bench: $(wildcard bench/*.c) bench/bench.h $(wildcard examples/tools/*.h) $(B)/own/own_rows.o $(B)/cmha.o
	$(OWN_COMPILE) $(filter %.c,$^) $(OWN_LINK)

$(B)/own/evidence: bench/evidence/evidence.c $(filter-out %/evidence.o,$(EVIDENCE)) $(B)/own/own_rows.o $(B)/cmha.o
	$(OWN_COMPILE) $(filter bench/%.c %.o,$^) $(filter-out %.o,$(OWN_LINK))

# These leave CMHA_IMPLEMENTATION to the build: here they share the tests' object.
$(EXTENSIONS): $(B)/%: examples/%.c examples/extensions/extension.h $(B)/cmha.o
	@mkdir -p $(@D)
	$(COMPILE) -o $@ $< $(B)/cmha.o $(LINK)

# The programs share the library as an object, once in float and once in double: it takes longer to compile than all of them.
$(B)/cmha.o $(B)/cmha-f64.o: cmha.h $(B)/config.mk
	$(COMPILE) $(PRECISION) -DCMHA_IMPLEMENTATION -x c -c -o $@ $<

$(B)/cmha-f64.o $(GRADS) $(B)/conformance-f64 $(B)/portable_files-f64: private PRECISION = -DCMHA_DOUBLE

# The tests' own code in half the time; the library that they test is optimised as it always is.
TEST_COMPILE = $(COMPILE) $(if $(filter -O2 -O3,$(CFLAGS)),-O1)

$(UNITS): $(B)/%: tests/%.c $(B)/cmha.o $(wildcard tests/*.h examples/*.h examples/tools/*.h)
	$(TEST_COMPILE) $(TEXT_CFLAGS) -DCMHA_TEST_LINKED -o $@ $< $(B)/cmha.o $(TEXT_LIBS) $(LINK)

$(B)/test_papers $(B)/grad_papers: $(wildcard bench/evidence/*.[ch] examples/tools/*.h)

$(B)/test_threads $(B)/test_ranks $(B)/grad_ranks: private LINK += $(if $(findstring NT,$(OS)),,-pthread)

$(GRADS): $(B)/%: tests/%.c $(B)/cmha-f64.o $(wildcard tests/*.h)
	$(TEST_COMPILE) $(PRECISION) -DCMHA_TEST_LINKED -o $@ $< $(B)/cmha-f64.o $(LINK)

$(B)/conformance: tests/conformance.c $(B)/cmha.o $(wildcard tests/*.h examples/tools/*.h)
	$(TEST_COMPILE) -DCMHA_TEST_LINKED -o $@ $< $(B)/cmha.o $(LINK)

$(B)/conformance-f64: tests/conformance.c $(B)/cmha-f64.o $(wildcard tests/*.h examples/tools/*.h)
	$(TEST_COMPILE) $(PRECISION) -DCMHA_TEST_LINKED -o $@ $< $(B)/cmha-f64.o $(LINK)

# The rest of the platforms: tests/platforms.sh and tests/compilers.sh say what they need and print N passed, N failed.
$(B)/portable_files: tests/portable_files.c $(B)/cmha.o $(wildcard tests/*.h)
	$(TEST_COMPILE) -DCMHA_TEST_LINKED -o $@ $< $(B)/cmha.o $(LINK)

$(B)/portable_files-f64: tests/portable_files.c $(B)/cmha-f64.o $(wildcard tests/*.h)
	$(TEST_COMPILE) $(PRECISION) -DCMHA_TEST_LINKED -o $@ $< $(B)/cmha-f64.o $(LINK)

$(B)/device_train: tests/device.c $(B)/cmha.o
	$(TEST_COMPILE) -o $@ $< $(B)/cmha.o $(LINK)

PLATFORMS = $(addprefix platform-,i386 musl aarch64 riscv64 ppc64le s390x windows wasm cortex-m)
platform-cortex-m: $(B)/device_train $(B)/embed
$(PLATFORMS): platform-%: $(PORTABLE)
	@tests/platforms.sh $* $(B)

platforms: $(PLATFORMS)

compilers:
	@tests/compilers.sh $(B)

# What differs from the last released version's library, by libabigail: TAG=v1.0.0
abi:
	@CC='$(CC)' ARGS='$(ARGS)' tests/abi.sh $(B) $(TAG)

symbols: $(B)/cmha.o
	CC='$(CC)' tests/symbols.sh $< > tests/symbols.txt

# The library as a shared object, which exports the public functions alone; of the system's own name.
ifeq ($(shell uname),Darwin)
LIB = $(B)/libcmha.dylib
AS_LIB = -dynamiclib -Wl,-exported_symbol,_cmha_*
else
LIB = $(B)/libcmha.so
AS_LIB = -shared -Wl,--version-script=$@.map
endif

lib: $(LIB)

$(LIB): cmha.h $(B)/config.mk
	@echo 'CMHA_$(VERSION) { global: cmha_*; local: *; };' > $@.map
	$(COMPILE) $(PRECISION) -fPIC -fno-semantic-interposition -DCMHA_IMPLEMENTATION -x c $< -x none $(AS_LIB) -o $@ $(LINK)

train: $(B)/train_tiny
	$(B)/train_tiny $(if $(findstring --preset,$(ARGS)),,--preset fast) $(ARGS)

extensions: $(EXTENSIONS)
	@for e in $^; do echo "---- $$e"; $$e || exit 1; done

# The one program that needs a library of its own; `make` does without.
$(B)/signal_data: examples/signal_data.c $(B)/cmha.o $(wildcard examples/tools/*.h)
	@printf '#include <liquid/liquid.h>\nint main(void) { return !liquid_libversion(); }\n' > $@.probe.c; \
	    $(CC) $@.probe.c -o $@.probe -lliquid >/dev/null 2>&1; status=$$?; rm -f $@.probe*; [ $$status -eq 0 ] || \
	    { echo 'signal_data needs liquid-dsp: apt-get install libliquid-dev (Debian, Ubuntu)' >&2; exit 1; }
	$(COMPILE) -DCMHA_LINKED -o $@ $< $(B)/cmha.o -lliquid $(LINK)

# train_tiny for several processes. What the compiler of an MPI calls is kept beside it: with another MPI it is built anew.
MPICC = mpicc
MPI_COMPILE = OMPI_CC='$(CC)' MPICH_CC='$(CC)' $(MPICC)

mpi: $(B)/train_mpi

$(B)/train_mpi: examples/train_tiny.c $(B)/cmha.o $(B)/mpi.txt $(wildcard examples/*.h examples/tools/*.h)
	$(MPI_COMPILE) $(FLAGS) $(TEXT_CFLAGS) -DWITH_MPI -DCMHA_LINKED -o $@ $< $(B)/cmha.o $(TEXT_LIBS) $(LINK) $(EXPORT)

$(B)/mpi.txt: FORCE
	@mkdir -p $(B); printf '#include <mpi.h>\nint main(void) { return MPI_Init(0, 0); }\n' > $@.probe.c; \
	    $(MPI_COMPILE) $@.probe.c -o $@.probe >/dev/null 2>&1; status=$$?; rm -f $@.probe*; [ $$status -eq 0 ] || \
	    { rm -f $@; echo 'train_mpi needs MPI: apt-get install openmpi-bin libopenmpi-dev (Debian, Ubuntu), or mpich libmpich-dev and MPICC=mpicc.mpich' >&2; exit 1; }
	@{ echo '$(MPICC)'; $(MPI_COMPILE) -show; } > $@.new; if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

# The page: the program, compiled for WebAssembly, stands in it as text. -O2 is as fast as -O3 there, and smaller.
EMCC = emcc
WEB_SMALL = preset=tiny n_layers=2 d_model=64 n_heads=4 d_ff=256 length=64 batch=8
WEB_WASM = --no-entry -sSTANDALONE_WASM=1 -sTOTAL_STACK=1MB -sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=1GB

web: $(B)/web/index.html

$(B)/web/cmha.wasm: examples/web/web.c cmha.h
	@command -v $(EMCC) >/dev/null || { echo 'make web needs emscripten: apt-get install emscripten (Debian, Ubuntu)' >&2; exit 1; }
	@mkdir -p $(@D)
	$(EMCC) -O2 -msimd128 -std=gnu99 $(WARN) -DCMHA_NO_CBLAS -DCMHA_NO_FILES -I. $< $(WEB_WASM) -o $@

$(B)/web/index.html: examples/web/index.html $(B)/web/cmha.wasm
	gzip -9n < $(B)/web/cmha.wasm | base64 > $(B)/web/cmha.txt
	sed -e '/^@WASM@$$/{r $(B)/web/cmha.txt' -e 'd' -e '}' $< > $@.new
	mv $@.new $@
	@echo "$@: $$(wc -c < $@) bytes, $$(gzip -9 < $@ | wc -c) gzipped"

$(B)/test_web: examples/web/web.c

$(B)/web_speed: examples/web/web.c $(B)/cmha.o
	$(COMPILE) '-DWEB_SPEED="$(WEB_SMALL)"' -DCMHA_LINKED -o $@ $< $(B)/cmha.o $(LINK)

web-speed: $(B)/web_speed
	@$(B)/web_speed
	@if [ cmha.h -nt $(B)/web/cmha.wasm ] && [ -e $(B)/web/cmha.wasm ]; then echo 'an older cmha.h in WebAssembly: make web'; fi
	@if [ -e $(B)/web/cmha.wasm ]; then node examples/web/speed.js $(B)/web/cmha.wasm '$(WEB_SMALL)'; fi

signal-data: $(B)/signal_data
	$(B)/signal_data $(or $(ARGS),--out $(B)/signal.safetensors)

bench: $(B)/bench
	$(B)/bench $(or $(ARGS),--json $(B)/bench.json --svg $(B)/bench.svg)

# Both build with all cores, unless make was told how many to take
CORES = $(or $(shell getconf _NPROCESSORS_ONLN 2>/dev/null),2)
test test-all: # with the shared object where tests/python.py can run
	@$(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(CORES)) all $$(tests/numpy.sh >/dev/null && echo lib)
	@CC='$(CC)' CMHA_CFLAGS='$(CFLAGS) $(OPENMP) $(BLAS_CFLAGS) $(DEFINES)' CMHA_LIBS='$(OPENMP) $(TEXT_LIBS) $(LINK)' \
	    tests/run.sh $(B) $(findstring all,$@)

# One test, built apart from the others: the header takes three seconds without optimisation
quick:
	@test -n '$(T)' || { echo 'make quick T=TEST: a test, such as test_scores or grad_words' >&2; exit 1; }
	@$(MAKE) --no-print-directory -s B=$(B)/quick CFLAGS='-O0 -g' $(B)/quick/$(T)
	@GOMP_SPINCOUNT=4000 $(B)/quick/$(T)

rooms:
	@LC_ALL=C awk -f tests/rooms.awk cmha.h cmha.h

# For a change of the header that must not alter results: every kind's training and decoding, before the change and after it.
bits: $(B)/cmha.o $(B)/cmha-f64.o
	@test -f '$(AGAINST)' || { echo 'make bits AGAINST=OLD.h: OLD.h is the header to compare with' >&2; exit 1; }
	@rm -rf $(B)/bits && mkdir -p $(B)/bits/old && cp '$(AGAINST)' $(B)/bits/old/cmha.h
	$(COMPILE) -DCMHA_LINKED tests/bits.c $(B)/cmha.o -o $(B)/bits/new $(LINK)
	$(COMPILE) -DCMHA_LINKED -DCMHA_DOUBLE tests/bits.c $(B)/cmha-f64.o -o $(B)/bits/new-f64 $(LINK)
	$(COMPILE) -iquote $(B)/bits/old tests/bits.c -o $(B)/bits/before $(LINK)
	$(COMPILE) -iquote $(B)/bits/old -DCMHA_DOUBLE tests/bits.c -o $(B)/bits/before-f64 $(LINK)
	@for x in before before-f64 new new-f64; do \
	    GOMP_SPINCOUNT=4000 $(B)/bits/$$x > $(B)/bits/$$x.txt || { cat $(B)/bits/$$x.txt; exit 1; }; done
	@for x in '' -f64; do diff $(B)/bits/before$$x.txt $(B)/bits/new$$x.txt || exit 1; done; echo 'the same bits'

FUZZ_SECONDS = 60
FUZZ_JOBS = 1
FUZZ_SEED = 0

fuzz:
	@FUZZ_JOBS=$(FUZZ_JOBS) FUZZ_SEED=$(FUZZ_SEED) tests/fuzz/run.sh $(B)/fuzz $(FUZZ_SECONDS)

# ThreadSanitizer takes OpenMP's and OpenBLAS's waiting for races, so neither is there: the only threads are the test's.
tsan: tests/test_threads.c cmha.h
	@mkdir -p $(B)
	$(CC) -std=gnu99 -O1 -g -fsanitize=thread -pthread -DCMHA_NO_CBLAS -I. tests/test_threads.c -o $(B)/tsan -lm
	$(B)/tsan

# As the tests are built, but at -O1: each mutant is compiled once or twice; test_convert runs build/convert
mutants: $(B)/config.mk $(B)/convert
	@CC='$(CC)' CMHA_CFLAGS='$(filter-out -O%,$(CFLAGS)) $(OPENMP) $(BLAS_CFLAGS) $(TEXT_CFLAGS) $(DEFINES)' \
	    CMHA_LIBS='$(OPENMP) $(TEXT_LIBS) $(LINK)' ONLY='$(ONLY)' JOBS='$(JOBS)' python3 tests/mutants.py $(B)/mutants $(ARGS)

# What other programs say of the code, one line for what is clean; each target names the package it lacks.
coverage memcheck: $(B)/convert
sanitize memcheck tidy cppcheck analyze coverage: $(B)/config.mk
	@CC='$(CC)' CMHA_CFLAGS='$(CFLAGS) $(OPENMP) $(BLAS_CFLAGS) $(DEFINES)' CMHA_LIBS='$(OPENMP) $(TEXT_LIBS) $(LINK)' tests/analysis.sh $@ $(B)

analysis: tidy cppcheck analyze

corpus: $(B)/kjv.txt

$(B)/kjv.txt:
	@command -v bible >/dev/null || \
	    { echo 'make corpus needs the program bible: apt-get install bible-kjv (Debian, Ubuntu)' >&2; exit 1; }
	@mkdir -p $(B)
	bible -f gen1:1-rev22:21 > $@.tmp && mv $@.tmp $@

# The page of the header's declarations and of the papers' equations; awk alone writes it
REFERENCE = $(addprefix examples/reference/,maths.awk reference.awk page.css page.js)
MAPPED = examples/tools/mobius_geometry.h $(wildcard examples/extensions/*.c)

docs: $(B)/reference.html

$(B)/reference.html: cmha.h examples/PAPERS.md $(REFERENCE) $(MAPPED)
	@mkdir -p $(B)
	@LC_ALL=C awk -v HERE=examples/reference $(patsubst %,-f %,$(filter %.awk,$^)) examples/PAPERS.md cmha.h $(MAPPED) > $@.new
	@mv $@.new $@
	@echo "$@: $$(wc -c < $@) bytes"

# What is for a system's users: installed as cmha-NAME, if it is built (examples/README.md, "Installing")
PROGRAMS = $(notdir $(TOOLS)) train_tiny signal signal_next spoken forecast

man: $(addprefix $(B)/,$(PROGRAMS))
	@VERSION=$(VERSION) examples/install/man.sh $(B) $(PROGRAMS)

install: $(B)/config.mk
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' VERSION=$(VERSION) PROGRAMS='$(PROGRAMS)' PC_CFLAGS='$(OPENMP) $(BLAS_CFLAGS)' \
	    PC_LIBS='$(OPENMP) $(BLAS_LIBS)' examples/install/install.sh install $(B)

uninstall:
	@PREFIX='$(PREFIX)' DESTDIR='$(DESTDIR)' examples/install/install.sh uninstall $(B)

clean:
	rm -rf $(B)

FORCE:
.PHONY: all $(PLATFORMS) platforms compilers bits symbols lib train own mpi signal-data extensions bench evidence evidence-all test test-all quick rooms fuzz tsan corpus docs man install uninstall abi clean FORCE
.PHONY: sanitize memcheck tidy cppcheck analyze analysis coverage mutants
.DELETE_ON_ERROR:
