#!/bin/sh
# tests/mpi.sh BUILD_DIR: build/train_mpi as one starts it, with mpirun: several ranks learn what one does, disagreement is refused before the
# first step, and whatever happens to a rank ends all of them, with a whole checkpoint. `make mpi` builds it; Open MPI or mpich, whichever it
# was built with. CMHA_MPI=long: more ranks and more kills (CMHA_TEST_KILLS, else 20), and then all of it with the other MPI, if it is installed.
B=$(cd "${1:-build}" && pwd) || exit 2
cd "$(dirname "$0")/.." || exit 2
if [ ! -x "$B/train_mpi" ]; then
    echo "SKIP there is no $B/train_mpi: make mpi"
    echo '0 passed, 0 failed'
    exit 0
fi
if [ "$B/cmha.o" -nt "$B/train_mpi" ]; then
    echo "SKIP this $B/train_mpi is older than its library: make mpi"
    echo '0 passed, 0 failed'
    exit 0
fi
W=$B/mpi
rm -rf "$W" && mkdir -p "$W/here" "$W/there" || exit 2
. tests/parts.sh
long='' both='' kills=${CMHA_TEST_KILLS:-5}
case $CMHA_MPI in long) long=1 both=1;; other) long=1;; esac
[ "$long" ] && kills=${CMHA_TEST_KILLS:-20}
seed=${CMHA_TEST_SEED:-1}
draw() { seed=$(((seed * 1103515245 + 12345) % 2147483648)) drawn=$((seed / 65536 % $1)); } # below $1
now() { date +%s%N | cut -c 1-13; } # in milliseconds
export GOMP_SPINCOUNT="${GOMP_SPINCOUNT:-4000}"

# ------------------------------------------------------------------------------------------------------------ starting ranks
# The mpirun of the library that the program was linked with
if ldd "$B/train_mpi" | grep -q libmpich; then
    mpi=mpich mpirun=$(command -v mpirun.mpich || command -v mpirun) options='' other=$(command -v mpirun.openmpi)
else
    mpi='Open MPI' mpirun=$(command -v mpirun.openmpi || command -v mpirun) other=$(command -v mpirun.mpich)
    options='--oversubscribe --bind-to none'
fi
# Open MPI: root may, and where ptrace is forbidden shared memory takes the other way
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
if [ -z "$mpirun" ]; then
    echo "SKIP there is no mpirun of $mpi here"
    echo '0 passed, 0 failed'
    exit 0
fi

# What mpirun starts: the program, as $W/only.RANK changes it for this rank; its process and its status become files
cat > "$W/rank" <<END
#!/bin/sh
rank=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}
cd "$W/here" || exit 3
[ -e "$W/only.\$rank" ] && . "$W/only.\$rank"
echo \$\$ > "$W/pid.new.\$rank" && mv "$W/pid.new.\$rank" "$W/pid.\$rank"
if [ ! -e "$W/statuses" ]; then exec "\$@"; fi
"\$@"
status=\$?
echo \$status > "$W/status.\$rank"
exit \$status
END
chmod +x "$W/rank"
program=$B/train_mpi
small='--quiet --seq 16 --threads 1 --set d_model=32 --set d_ff=64 --set n_heads=2 --set n_layers=2 --set eval_tokens=64'
# only RANK COMMANDS: the next start of this rank alone is changed, as in `only 1 'set -- "$@" --resume'`
only() { printf '%s\n' "$2" > "$W/only.$1"; }
# instead RANK OPTION...: the next start of this rank alone has this option with its value, and not the one of all
cat > "$W/without" <<'END'
dropped=
for a do
    shift
    if [ "$dropped" ]; then dropped=
    elif [ "$a" = "$drop" ] && [ "$a" != --set ]; then dropped=1
    else set -- "$@" "$a"
    fi
done
END
instead() { only "$1" "drop=${2%% *}; . '$W/without'; set -- \"\$@\" $2"; }
# usual NAME OPTION...: in $usual what every start is given, without the options that this one gives itself
usual() {
    usual="$small --out $W/$1 --csv $W/$1.csv"; shift
    for o in "$@"; do
        case $o in --set|--quiet) ;; --*) usual=$(printf '%s\n' "$usual" | sed "s|${o%%=*} [^ ]*||");; esac
    done
}
# starts RANKS NAME OPTION...: in the background, as process $job; the files are $W/NAME, .last and .csv, what it
# says is in $W/out, its sample in $W/sample
jobs=0 before=
starts() {
    n=$1 name=$2; shift 2
    rm -f "$W"/pid.* "$W"/status.*
    jobs=$((jobs + 1))
    usual "$name" "$@"
    # shellcheck disable=SC2086
    CMHA_MPI_JOB=$$.$jobs $before $mpirun $options -n "$n" "$W/rank" "$program" $usual "$@" \
        > "$W/sample" 2> "$W/out" < /dev/null &
    job=$!
}
# because WHY: a check has failed; what there is to see begins with that
because() { printf '%s\n' "$1" | cat - "$W/out" > "$W/why"; mv "$W/why" "$W/out"; return 1; }
# left: processes of the job that are still there, by a variable that all of them have
left() { grep -lsz "^CMHA_MPI_JOB=$$.$jobs\$" /proc/[0-9]*/environ | cut -d / -f 3; }
# ends SECONDS: the job does; $status is its status, $took how many milliseconds that took. What it left is killed, and a failure
ends() {
    from=$(now) until=$(($(now) + 1000 * $1))
    while kill -0 $job 2> /dev/null && [ "$(now)" -lt $until ]; do sleep 0.02; done
    while [ -n "$(left)" ] && [ "$(now)" -lt $until ]; do sleep 0.05; done
    took=$(($(now) - from)) remain=$(left)
    # shellcheck disable=SC2086
    if [ -n "$remain" ]; then kill -KILL $remain; fi
    { wait $job; status=$?; } 2> /dev/null # without a word on who was killed
    rm -f "$W"/only.*
    [ -z "$remain" ] || because "after $1 s there were still processes: $remain"
}
finished() { ends 120 && [ $status -eq 0 ]; }
# trains RANKS NAME OPTION...: to the end, with status 0
trains() { starts "$@"; finished; }
# alone NAME OPTION...: train_tiny, one process; alone_as PROGRAM NAME OPTION...: that one
alone() { alone_as train_tiny "$@"; }
alone_as() {
    only_one=$1 name=$2; shift 2
    usual "$name" "$@"
    # shellcheck disable=SC2086
    (cd "$W/here" && "$B/$only_one" $usual "$@" > "$W/sample" 2> "$W/out" < /dev/null)
}
# our lines, not those of MPI
ours() { grep '^train_[a-z]*: ' "$W/out"; }

# -------------------------------------------------------------------------------------------------------------------- comparing
# same A B: OUT, OUT.last and the CSV but for the speed, byte for byte
same() {
    for kind in '' .last; do cmp "$W/$1$kind" "$W/$2$kind" > "$W/out" 2>&1 || return 1; done
    for name in "$1" "$2"; do cut -d, -f 1-5,7- "$W/$name.csv" > "$W/$name.rows"; done
    diff "$W/$1.rows" "$W/$2.rows" > "$W/out"
}
# near A B [STEPS]: the rows of steps 1 to STEPS, else of all that one of them has, say the same, to a unit of the last printed digit or 1e-5
# of the number; of a step that was done again after a kill, the last row counts. The speed is not looked at, the rate has to be equal
near() {
    awk -F, -v steps="$3" 'BEGIN { split("0 1e-6 1e-5 0 1e-4 0 1e-5 1e-5", unit, " "); for (s = 1; s <= steps; s++) row[s] }
        FNR == 1 { file++; next }
        { if (steps == "") row[$1]; for (i = 2; i <= 8; i++) cell[file, $1, i] = $i }
        END {
            for (s in row) for (i = 2; i <= 8; i++) {
                a = cell[1, s, i]; b = cell[2, s, i]; far = a - b; n++
                if (far < 0) far = -far
                if (i == 6) continue
                if ((a == "") != (b == "") || (i == 2 && a == "") || (i == 4 && a != b) ||
                    far > 1.1 * unit[i] + 1e-5 * (a > 1 ? a : 1)) { print "step " s ", column " i ": " a " and " b; exit 1 }
            }
            exit !n
        }' "$W/$1.csv" "$W/$2.csv" > "$W/out"
}

# ------------------------------------------------------------------------------------------------------- several are one
cp LICENSE "$W/here/text" # `elsewhere` another folder than that of the other ranks
elsewhere='cd ../there'
awk 'BEGIN { for (i = 0; i < 300; i++) printf "d\003\007\001\001\002" }' > "$W/here/numbers" # 868, 263, 513
if [ -x "$B/tokens" ]; then "$B/tokens" train --size 300 --out "$W/here/words.json" LICENSE > "$W/out" 2>&1; fi
one "train_tiny: a checkpoint to begin with" alone base --batch 2 --steps 3 text
cp "$W/base" "$W/here/base"
# Each row: what it is, and with which options
set -f
while IFS='|' read -r what given; do
    case $given in *words.json*) [ -e "$W/here/words.json" ] || continue;; esac
    steps=10; [ "$what" = plain ] && steps=50
    given="--steps $steps --set eval_every=4 $given"
    # shellcheck disable=SC2086
    {
        one "$what: one process" alone alone --batch 4 $(printf %s "$given" | sed 's/--overlap 1//')
        one "$what: 2 ranks" trains 2 two --batch 2 $given
        one "$what: 2 ranks learn what one process does" near alone two $steps
        case $what$long in plain | experts | tokenizer | *1)
            one "$what: 1 rank" trains 1 one --batch 4 $given
            one "$what: 1 rank writes the bytes of train_tiny" same alone one
            one "$what: 4 ranks" trains 4 four --batch 1 $given
            one "$what: 4 ranks learn what one process does" near alone four $steps
            one "$what: 4 ranks again" trains 4 again --batch 1 $given
            one "$what: the same bytes again" same four again;;
        esac
    }
done <<END
plain|text
experts|--attention crat --set balance=0.01 text
accumulation and dropout|--set accumulate=2 --set dropout=0.1 --set attention_dropout=0.1 text
Möbius maps|--attention mobius text
numbers|--width 2 --set vocabulary=900 numbers
frozen parameters|--freeze blocks.0.* --rate *.delta=0.1 text
overlapped sums|--overlap 1 --set accumulate=2 text
--from|--from base text
adapters|--from base --lora 2,4 text
tokenizer|--tokenizer words.json text
END
set +f
one "3 ranks, a validation of fewer passes: one process" alone alone --batch 6 --steps 6 --set eval_every=2 text
one "3 ranks, a validation of fewer passes" trains 3 three --batch 2 --steps 6 --set eval_every=2 text
one "3 ranks, a validation of fewer passes: the same" near alone three 6
one "ranks with different numbers of threads" eval 'instead 1 "--threads 2"; trains 2 three --batch 3 --steps 6 --set eval_every=2 text'
one "ranks with different numbers of threads: the same" near alone three 6
if [ ! "$other" ]; then echo "SKIP there is no other MPI, whose mpirun would be the wrong one"; else
    # shellcheck disable=SC2086
    "$other" -n 2 "$W/rank" "$program" $small --out "$W/wrong" --csv "$W/wrong.csv" text > "$W/sample" 2> "$W/out" < /dev/null
    status=$?
    one "another MPI's mpirun: one line says so" [ "$status $(ours | grep -c 'not that of the MPI')" = '1 1' ]
fi
# besides COMMAND...: rank 0 is train_mpi, rank 1 is that
besides() {
    jobs=$((jobs + 1)) name=mixed
    # shellcheck disable=SC2086
    CMHA_MPI_JOB=$$.$jobs $mpirun $options -n 1 "$W/rank" "$program" $small --out "$W/$name" --csv "$W/$name.csv" text : -n 1 "$W/rank" "$@" \
        > "$W/sample" 2> "$W/out" < /dev/null &
    job=$!
}
besides "$B/train_tiny" --out "$W/mixed" --csv "$W/mixed.csv" text
ends 20
one "train_tiny as a rank: one line says so" [ "$((status != 0)) $(ours | wc -l) $(ours | grep -c 'built without MPI')" = '1 1 1' ]
program=$B/train_tiny
starts 2 mixed text
ends 20
program=$B/train_mpi
one "mpirun train_tiny: nothing is trained" [ "$((status != 0)) $(ours | grep -c 'built without MPI') $(find "$W" -name 'mixed*')" = '1 1 ' ]
export CMHA_PATIENCE=1
besides sleep 60
sleep 3
one "a program without MPI as a rank: one line says what is waited for" [ "$(ours | grep -c 'still waits for the other ranks to start')" -eq 1 ]
kill -TERM $job
ends 10
unset CMHA_PATIENCE
one "without mpirun: train_tiny" alone alone --batch 2 --steps 4 text
one "without mpirun" alone_as train_mpi one --batch 2 --steps 4 text
one "without mpirun: the bytes of train_tiny" same alone one
small=${small#--quiet } # progress as well
one "progress" trains 2 two --batch 2 --steps 4 text
small="--quiet $small"
one "progress is shown by one rank" [ "$(grep -c '^2 ranks, each with 2 of ' "$W/sample") $(grep -c '^step 4/4 ' "$W/sample")" = '1 1' ]
one "--help: status 0" trains 2 help --help
one "--help: once" [ "$(grep -c '^Training: ' "$W/sample")" -eq 1 ]

# ------------------------------------------------------------------------------------- what is refused before the first step
mkdir -p "$W/kept"
one "a run whose files may not change" trains 2 kept/model --batch 2 --steps 4 --set eval_every=2 text
files() { (cd "$W/kept" && cksum ./*); }
files > "$W/files"
# refused LABEL PATTERN RANKS OPTION...: the ranks end before the first step, none with status 0, in one line, which fits; no file changes
refused() {
    label=$1 pattern=$2 n=$3; shift 3
    : > "$W/statuses"
    OMPI_MCA_odls_base_sigkill_timeout=0 starts "$n" kept/model "$@" # else Open MPI waits 1 s for who has ended
    one "refused: $label" turned_down
    rm "$W/statuses"
}
turned_down() {
    ends 20 || return 1
    [ $status -ne 0 ] || { because 'mpirun has status 0'; return; }
    cat "$W"/status.* 2> /dev/null | grep -qx 0 && { because 'a rank has status 0'; return; }
    [ "$(ours | wc -l)" -eq 1 ] || { because "$(ours | wc -l) lines of ours, not one"; return; }
    ours | grep -q -- "$pattern" || { because "the line does not say $pattern"; return; }
    files | cmp -s - "$W/files" || because 'a file has changed'
}
second="rank 1 on $(hostname | cut -d . -f 1)[^:]*:"
# odd LABEL PATTERN OPTION...: refused because rank 1 differs, which the line names with its machine
odd() {
    label=$1 pattern=$2; shift 2
    refused "$label" "^train_mpi: $second .*\\($pattern\\).* on rank 0" 2 --batch 2 --steps 6 "$@"
}
sed 's/Permission/permission/' LICENSE > "$W/there/text"
only 1 "$elsewhere"; odd "another text" text text
cp "$W/here/text" "$W/there/text" && printf 'x' >> "$W/there/text"
only 1 "$elsewhere"; odd "a text with a byte more" text text
rm "$W/there/text"
only 1 "$elsewhere"; refused "a text that rank 1 lacks" "$second text" 2 text
only 0 "$elsewhere"; refused "a text that rank 0 lacks" ': text: ' 2 text
refused "a text that all lack" nowhere 2 nowhere
: > "$W/here/empty"
refused "an empty text" empty 2 empty
while IFS=';' read -r what pattern given; do
    instead 1 "$given"
    odd "$what" "$pattern" text
done <<END
another seed;seed;--seed 2
another learning rate;lr;--lr 1e-3
another number of steps;steps;--steps 7
another batch;batch;--batch 4
another width of the model;d_ff;--set d_ff=32
another kind;attention;--attention rope
a text read otherwise;width;--width 2
frozen parameters;learn\|freeze\|parameter;--freeze 'blocks.0.*'
another rate;learn\|rate\|parameter;--rate '*.delta=0.5'
weights from elsewhere;from;--from base
a state from elsewhere;resume;--resume=$W/kept/model.last
other sums;overlap;--overlap 1
END
if [ -e "$W/here/words.json" ]; then
    "$B/tokens" train --size 310 --out "$W/here/other.json" LICENSE > "$W/out" 2>&1
    instead 1 '--tokenizer other.json'; odd "another tokenizer" 'tokenizer\|vocabulary' --tokenizer words.json text
fi
refused "a misspelt option" ' --steps' 2 --stpes 3 text
refused "a misspelt field" ' n_layers' 2 --set n_layer=3 text
only 1 'set -- "$@" --stpes 3'; refused "an option that one rank has misspelt" ' --steps' 2 text
refused "a value that is none" steps 2 --steps many text
refused "a state that is not there" nowhere 2 --resume="$W/nowhere" text
refused "less than a sequence of text" length\\\|seq 2 --seq 5000 text
refused "a csv that cannot be written" nowhere/x 2 --csv "$W/nowhere/x" text
[ ! -c /dev/full ] || refused "a csv on a full device" /dev/full 2 --csv /dev/full text
refused "a checkpoint that cannot be written" nowhere/x 2 --out "$W/nowhere/x" --csv "$W/other.csv" --set eval_every=2 text
refused "4 sequences to resume with 3 ranks" 'batch of 4 does not divide among 3 ranks; --batch' 3 --resume text
only 1 'ulimit -v 1000000'; refused "no memory on rank 1" "$second.*memory" 2 --seq 2048 --batch 256 "$(pwd)/cmha.h"
# Another program on rank 1: of the next header, and with other numbers
mpicc=$(sed -n 1p "$B/mpi.txt" 2> /dev/null) next=$W/next
text=$(sed -n 's/^TEXT_CFLAGS ?= //p' "$B/config.mk")
libraries=${CMHA_LIBS-$(sed -n 's/^[A-Z_]*LIBS ?= //p; s/^OPENMP ?= //p' "$B/config.mk" | tr '\n' ' ')-lm}
mkdir -p "$next" && sed 's/define CMHA_VERSION_PATCH .*/define CMHA_VERSION_PATCH 99/' cmha.h > "$next/cmha.h"
# builds NAME LIBRARY FLAG...: $W/NAME, train_mpi of that library with those flags
# shellcheck disable=SC2086
builds() {
    name=$1 library=$2; shift 2
    "${mpicc:-mpicc}" "$@" -I. $text -DWITH_MPI -DCMHA_LINKED examples/train_tiny.c "$library" -o "$W/$name" $libraries > "$W/out" 2>&1
}
one "train_mpi of another header compiles" builds other_header "$B/cmha.o" -I"$next" -include "$next/cmha.h"
only 1 "shift; set -- $W/other_header \"\$@\""; odd "another version of the header" 'cmha [0-9.]*99 ' text
if [ -e "$B/cmha-f64.o" ]; then
    one "train_mpi in double compiles" builds in_double "$B/cmha-f64.o" -DCMHA_DOUBLE
    only 1 "shift; set -- $W/in_double \"\$@\""; odd "another precision" 'numbers of 8 bytes' text
fi
# What may differ, as machines do not always share their files: rank 0's checkpoint is the one that counts
one "a checkpoint on rank 0: from it" trains 2 one --from base --batch 2 --steps 4 text
rm -f "$W/there/base" && cp "$W/here/text" "$W/there/text"
only 1 "$elsewhere"
one "a checkpoint on rank 0 alone: from it" trains 2 two --from base --batch 2 --steps 4 text
one "a checkpoint on rank 0 alone: the same" same one two
head -c 9999 "$W/base" > "$W/there/base"
only 1 "$elsewhere"
one "another checkpoint on rank 1" trains 2 two --from base --batch 2 --steps 4 text
one "another checkpoint on rank 1 changes nothing" same one two
cp "$W/here/base" "$W/whole_base" && cp "$W/there/base" "$W/here/base"
refused "a checkpoint that is cut on rank 0" base 2 --from base text
cp "$W/whole_base" "$W/here/base"

# ------------------------------------------------------------------------------------------- a step that fails on one rank alone
awk 'BEGIN { for (i = 0; i < 2000; i++) printf i % 300 == 299 ? "d\004" : "d\003" }' > "$W/here/outside" # 868, a few 1124
alone alone --batch 2 --width 2 --set vocabulary=900 --set eval_every=1 outside
one "a token outside of the vocabulary: one process ends" [ "$(ours | grep -c 1124)" -eq 1 ]
rm -f "$W"/two*
trains 2 two --batch 1 --width 2 --set vocabulary=900 --set eval_every=1 outside
one "a token outside of the vocabulary: 2 ranks end in one line" [ "$status $(ours | wc -l) $(ours | grep -c 1124)" = '1 1 1' ]
one "a token outside of the vocabulary: in the same step" near alone two

# ------------------------------------------------------------------------------------------------- a number that is not finite
# A text with few `c`, and weights in which c is no number: the rank that meets one speaks for all
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "%s", i % 100 == 50 && i < 3000 ? "c" : i * i * i % 11 < 5 ? "a" : "b" }' > "$W/here/rare"
own="--set tied=0 --steps 30 --set eval_every=10"
# shellcheck disable=SC2086
one "a checkpoint with a NaN" alone nan --batch 1 --set tied=0 --steps 1 rare
header=$(od -An -tu8 -N8 "$W/nan" | tr -d ' ')
at=$(head -c $((8 + header)) "$W/nan" | LC_ALL=C sed -n 's/.*"tok_emb.weight":{[^}]*"data_offsets":\[\([0-9]*\),.*/\1/p')
printf '\000\000\300\177' | dd of="$W/nan" bs=1 seek=$((8 + header + at + 4 * 32 * 99)) conv=notrunc 2> "$W/out"
cp "$W/nan" "$W/here/nan"
skipped() { ours | grep -c 'step skipped'; }
# shellcheck disable=SC2086
alone alone --from nan --batch 2 $own rare # the sample may meet the NaN: the status is the same for both
single=$? skips=$(skipped)
one "steps that are not finite: one process skips some" [ "$skips" -gt 0 ]
# shellcheck disable=SC2086
trains 2 two --from nan --batch 1 $own rare
one "steps that are not finite: 2 ranks skip as many, $skips" [ "$(skipped)" -eq "$skips" ]
one "steps that are not finite: 2 ranks end as one does" [ $((status != 0)) -eq $((single != 0)) ]
one "steps that are not finite: 2 ranks learn what one does" near alone two
awk 'BEGIN { for (i = 0; i < 4000; i++) printf "c" }' > "$W/here/rare"
# shellcheck disable=SC2086
alone alone --from nan --batch 2 $own rare
single=$(ours | wc -l)
# shellcheck disable=SC2086
trains 2 two --from nan --batch 1 $own rare
one "no step is finite: the ranks say what one process says" [ "$(ours | wc -l)" -eq "$single" ]
one "no step is finite: the ranks end" [ $status -ne 0 ]

# ------------------------------------------------------------------------------------------------- a rank, or mpirun, is killed
steps=120
course="--batch 2 --steps $steps --set eval_every=3 text"
# shellcheck disable=SC2086
one "a run that nobody disturbs" trains 2 whole $course
lasts=$took slowest=0
# goes_on NAME [OPTION...]: that run in the background, from the state that is there
goes_on() {
    whose=$1; shift
    # shellcheck disable=SC2086
    if [ -e "$W/$whose.last" ]; then starts 2 "$whose" --resume "$@" text; else starts 2 "$whose" "$@" $course; fi
}
# process_of WHO: of a rank, once it has one, or of mpirun, as $pid; of a terminal, whose Ctrl-C reaches all at once
process_of() {
    case $1 in mpirun) pid=$job; return;; terminal) pid=-$job; return;; esac
    until [ -e "$W/pid.$1" ] || ! kill -0 $job 2> /dev/null; do sleep 0.01; done
    pid=$(cat "$W/pid.$1" 2> /dev/null)
}
running() { kill -0 "$pid" 2> /dev/null; }
# appears FILE: waits until it is there, as long as the job is
appears() { until [ -e "$1" ] || ! kill -0 $job 2> /dev/null; do sleep 0.01; done; [ -e "$1" ]; }
# undone NAME: both checkpoints have the bytes of the run that nobody disturbed, and the CSV its rows
undone() {
    for kind in '' .last; do cmp "$W/whole$kind" "$W/$1$kind" > "$W/out" 2>&1 || return 1; done
    near whole "$1" $steps
}
# over: all processes end within 10 s, with at most one line of ours
over() {
    ends 10 || return 1
    if [ $took -gt $slowest ]; then slowest=$took; fi
    [ "$(ours | wc -l)" -le 1 ] || because "$(ours | wc -l) lines of ours"
}
# saving: waits until the process $pid has a file open whose name is not yet that of a checkpoint
saving() { while running; do find /proc/"$pid"/fd -lname "$W/*#*" -o -lname "$W/*.tmp" 2> /dev/null | grep -q . && return; done; }
killed=0 runs=0 in_a_save=0
while [ $killed -lt "$kills" ] && [ $runs -lt $((4 * kills)) ]; do
    goes_on killed --overlap $((runs % 2)) # the sum of two has the same bits
    runs=$((runs + 1))
    draw 3
    case $drawn in
        2) process_of 0; saving && in_a_save=$((in_a_save + 1));;
        *) process_of $drawn; draw "$lasts"; sleep "$(awk -v ms=$drawn 'BEGIN { printf "%.3f", ms / 1000 }')";;
    esac
    kill -KILL "$pid" 2> /dev/null
    one "a rank is killed: the others end" over
    if [ $status -ne 0 ]; then killed=$((killed + 1)); continue; fi
    one "a run with killed ranks ends as an undisturbed one" undone killed # it was at its end before the kill
    rm -f "$W"/killed*
done
goes_on killed
one "it goes on after the last kill" finished
one "a run with killed ranks ends as an undisturbed one" undone killed
one "there were kills" [ $killed -gt 0 ]
goes_on lost
appears "$W/lost.last" && kill -KILL $job
one "mpirun is killed: the ranks end" over
goes_on lost
one "it goes on after that" finished
one "a run whose mpirun was killed ends as an undisturbed one" undone lost

# -------------------------------------------------------------------------------------------------- signals that ask for an end
# asked SIGNAL WHO: the job stops in the middle and goes on later; a rank that is asked has all of them stop at one step, and save
asked() {
    rm -f "$W"/asked*
    [ "$2" = terminal ] && before=setsid
    goes_on asked
    before=
    process_of "$2"
    appears "$W/asked.last" && kill -s "$1" -- "$pid"
    one "SIG$1 to $2: all end" over
    case $mpi$2 in mpichmpirun | mpichterminal) ;; *) one "SIG$1 to $2: the status is not 0" [ $status -ne 0 ];; esac # Hydra's may be 0
    case $2 in 0 | 1)
        one "SIG$1 to $2: one line says how to go on" [ "$(ours | grep -c 'stopped; --resume continues')" -eq 1 ]
        for kind in '' .last .csv; do cp "$W/asked$kind" "$W/moved$kind"; done;;
    esac
    goes_on asked
    one "SIG$1 to $2: it goes on" finished
    one "SIG$1 to $2: it ends as an undisturbed run" undone asked
    case $2 in 0 | 1) one "SIG$1 to $2: not a step is lost or done twice" same whole asked;; esac
}
for signal in TERM INT USR1; do
    for who in 0 1 mpirun terminal; do
        case $long$signal$who in 1* | TERM1 | *mpirun | INTterminal) asked $signal $who;; esac
    done
done
for n in 1 4; do
    for kind in '' .last .csv; do cp "$W/moved$kind" "$W/moved$n$kind"; done
    one "what 2 ranks left goes on with $n" trains $n moved$n --resume text
    one "what 2 ranks left goes on with $n: the same losses" near whole moved$n $steps
done
one "what 2 ranks left goes on in train_tiny" alone moved --resume text
one "what 2 ranks left goes on in train_tiny: the bytes of 1 rank" same moved1 moved

goes_on paused
for victim in 0 1; do
    process_of $victim
    appears "$W/paused.last"
    kill -STOP "$pid"; sleep 0.7; kill -CONT "$pid"
done
one "ranks that stand still for a moment" finished
one "ranks that stand still for a moment change nothing" same whole paused

# ---------------------------------------------------------------------------------------------- who is waited for, and how long
rank_on() { echo "rank $1 on $(hostname | cut -d . -f 1)[^:]*"; }
# says PATTERN: a line of ours does, and as many lines as the second argument says are ours
says() {
    ours | grep -q -- "$1" || { because "no line says $1"; return; }
    [ "$(ours | wc -l)" -eq "$2" ] || because "$(ours | wc -l) lines of ours, not $2"
}
if [ "$mpi" = 'Open MPI' ]; then # Hydra kills all at once
    for victim in 0 1; do
        goes_on mourned
        process_of $victim
        appears "$W/mourned.last" && kill -KILL "$pid"
        one "rank $victim is killed: the others end" over
        one "rank $victim is killed: the line names it" says "$(rank_on $((1 - victim))) ends: $(rank_on $victim) has died" 1
        rm -f "$W"/mourned*
    done
fi
export CMHA_PATIENCE=1
for victim in 0 1; do
    goes_on waited
    process_of $victim
    appears "$W/waited.last" && kill -STOP "$pid"
    sleep 2.5; kill -CONT "$pid"
    one "rank $victim does not answer for a while: the job goes on" finished
    one "rank $victim does not answer for a while: one line says so" says "$(rank_on $((1 - victim))) has waited [12] s for $(rank_on $victim)" 1
    one "rank $victim does not answer for a while: nothing changes" same whole waited
    rm -f "$W"/waited*
done
unset CMHA_PATIENCE
# limited LABEL WHO LINES PATTERN: a job with --timeout 2 has ended with a line that names rank 1, and what is saved
limited() {
    ends 15
    one "$1: all end" [ $((status != 0)) -eq 1 ]
    one "$1: the line says so" says "$(rank_on 0) has given up after 2 s of waiting for $(rank_on 1); $2" 2
}
# a rank that stands still in a measurement leaves that row without its value, which no run without a stop does: then once more
for turn in 1 2 3 4 5; do
    rm -f "$W"/limited*
    goes_on limited --timeout 2
    process_of 1
    appears "$W/limited.last" && kill -STOP "$pid"
    limited "--timeout" "--resume continues"
    tail -n 1 "$W/limited.csv" | awk -F, '$1 % 3 == 0 && $3 == "" { missing = 1 } END { exit !missing }' || break
done
one "--timeout: it stands still in a step, once in $turn times" [ "$turn" -lt 5 ]
goes_on limited
one "--timeout: it goes on" finished
one "--timeout: it ends as an undisturbed run" undone limited
one "--timeout: no step is lost or done twice" [ "$(wc -l < "$W/limited.csv")" -eq $((steps + 1)) ]
if [ -e "$W/here/words.json" ]; then # the ids of the text are there before the weights, which take a while
    usual_small=$small
    small=$(echo "$small" | sed 's/d_model=32/d_model=512/; s/n_layers=2/n_layers=8/')
    starts 2 early --timeout 2 --tokenizer words.json text
    small=$usual_small
    process_of 1
    appears "$W/early.ids" && kill -STOP "$pid"
    limited "--timeout before the first step" "nothing was saved yet"
    one "--timeout before the first step: nothing is" [ ! -e "$W/early.last" ]
fi

# ------------------------------------------------------------------------------------------------------ the bytes of a sum
# rings RANKS: of the model's bytes the busiest rank sends what it does in a ring, 2 (RANKS - 1) / RANKS of them a step, and no 5 % more,
# as Open MPI counts them in runs of 2 and 4 steps
rings() {
    for steps in 2 4; do
        before="env OMPI_MCA_pml_monitoring_enable=2 OMPI_MCA_pml_monitoring_enable_output=3"
        before="$before OMPI_MCA_pml_monitoring_filename=$W/sent.$steps"
        starts "$1" counted --overlap "$given" --batch 1 --steps $steps --set d_model=128 --set d_ff=512 --set n_layers=4 text
        before=
        finished || return 1
    done
    learn=$(sed -n 's/.*; \([0-9]*\) parameters.*/\1/p' "$W/sample")
    for rank in $(seq 0 $(($1 - 1))); do
        awk 'FNR == 1 { file++ } $1 == "E" || $1 == "I" { sum[file] += $4 } END { printf "%d\n", (sum[2] - sum[1]) / 2 }' \
            "$W/sent.2.$rank.prof" "$W/sent.4.$rank.prof" || return 1
    done | awk -v n="$1" -v bytes=$((4 * learn)) '$1 > most { most = $1 }
        END {
            ring = 2 * (n - 1) / n; times = most / bytes
            print times " times the bytes, a ring: " ring
            exit !(times > .95 * ring && times < 1.05 * ring)
        }' > "$W/out"
}
if [ "$mpi" = 'Open MPI' ] && ompi_info 2> /dev/null | grep -q 'pml: monitoring'; then
    small=${small#--quiet }
    for n in 3 ${long:+5 6}; do
        for given in 0 1; do one "$n ranks, --overlap $given: sums send what a ring does" rings "$n"; done
    done
    small="--quiet $small"
else echo "SKIP there is no Open MPI that counts bytes"; fi

# ---------------------------------------------------------------------------------------------------------- the disk of rank 0
# full: the job has ended in one line that names the reason and leaves nothing half-written; then there is room again
full() {
    one "$1: all end" over
    one "$1: the status is not 0" [ $status -ne 0 ]
    one "$1: one line says so" [ "$(ours | grep -c "$2")" -eq 1 ]
    one "$1: nothing half-written" [ -z "$(find "$W" -name '*.tmp')" ]
    goes_on "$3"
    one "$1: it goes on when there is room" finished
    one "$1: it ends as an undisturbed run" undone "$3"
}
size=$(wc -c < "$W/whole.last")
find "$W" -name '*.tmp' -delete # who was killed above between naming a file and its place leaves one, as the guide says
if command -v prlimit > /dev/null 2>&1; then
    only 0 'trap "" XFSZ' # the limit comes while it runs, perhaps in the middle of a write
    goes_on limit
    process_of 0
    appears "$W/limit.last" && prlimit --pid "$pid" --fsize=$((size / 2)): > "$W/log" 2>&1
    full "files may not be as large on rank 0" 'File too large' limit
else echo "SKIP there is no prlimit"; fi
mkdir -p "$W/disk" "$W/saved"
small_disk="mount -t tmpfs -o size=$((size * 5 / 2)) none '$W/disk' && cd '$W/disk'"
name_space=
for way in 'unshare -m' 'unshare -rm'; do # a mount that ends with its processes
    [ "$name_space" ] || { $way sh -c "$small_disk" > "$W/log" 2>&1 && name_space=$way; }
done
if [ "$name_space" ]; then
    cat > "$W/on_disk" <<END
$small_disk || exit 9
"\$@"
status=\$?
cp -p "$W"/disk/* "$W/saved"
exit \$status
END
    before="$name_space sh $W/on_disk"
    # shellcheck disable=SC2086
    starts 2 disk/model $course --csv "$W/saved/model.csv"
    before=
    full "the disk of rank 0 is full" 'No space left' saved/model
else echo "SKIP there is no right to mount a small disk"; fi

echo "$killed kills of a rank with $mpi, $in_a_save while rank 0 saved; at most $slowest ms until all processes were gone"
rm -rf "$W"

# ------------------------------------------------------------------------------------------------------------- the other MPI
if [ "$both" ] && [ "$other" ]; then
    W=$B/other
    rm -rf "$W" && mkdir -p "$W"
    for f in train_tiny tokens cmha.o cmha-f64.o config.mk; do [ ! -e "$B/$f" ] || ln -s "$B/$f" "$W/$f"; done
    mpicc=mpicc.${other##*.}
    echo "$mpicc" > "$W/mpi.txt"
    one "train_mpi of the other MPI compiles" builds train_mpi "$B/cmha.o"
    if [ -x "$W/train_mpi" ]; then part "train_mpi of the other MPI" env CMHA_MPI=other tests/mpi.sh "$W"; fi
fi
total
