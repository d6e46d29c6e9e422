#!/bin/sh
# How far a model that was trained with RoPE gets on another text, by what of it may learn; see bench/README.md.
#     bench/finetune.sh [-b BUILD] [-s STEPS] [-l LENGTH] [-n BATCH] [-e TOKENS] [-r SEEDS] [-f RATES] [-a RATES] [-o FOLDER] CHECKPOINT TEXT
# CHECKPOINT is of attention rope. Each row first tries its rates (-f where few numbers learn, -a where all do) on seed 99, and then takes
# the best one for the seeds 1 .. SEEDS. A run's validation is its lowest, over TOKENS of the last tenth of TEXT. Every run leaves
# its CSV in FOLDER; what is there is not run again.
set -eu
build=build steps=300 length=256 batch=8 tokens=65536 seeds=3 folder=build/finetune
few='3e-3 1e-2 3e-2 1e-1' all='3e-4 1e-3 3e-3 1e-2'
while getopts b:s:l:n:e:r:f:a:o: option; do
    case $option in
    b) build=$OPTARG;; s) steps=$OPTARG;; l) length=$OPTARG;; n) batch=$OPTARG;; e) tokens=$OPTARG;;
    r) seeds=$OPTARG;; f) few=$OPTARG;; a) all=$OPTARG;; o) folder=$OPTARG;;
    *) sed -n '2,3s/^# *//p' "$0" >&2; exit 2;;
    esac
done
shift $((OPTIND - 1))
[ $# -eq 2 ] || { sed -n '2,3s/^# *//p' "$0" >&2; exit 2; }
base=$1 text=$2
mkdir -p "$folder"
euler=$folder/euler.safetensors
[ -f "$euler" ] || "$build/convert" --attention cmha "$base" "$euler" > "$folder/convert.log"

# run NAME SEED RATE STEPS OPTION..: trains, unless it has been; leaves NAME.SEED.RATE.csv and .log
run() {
    csv=$folder/$1.$2.$3.csv log=$folder/$1.$2.$3.log out=$folder/$1.$2.safetensors seed=$2 rate=$3 n=$4
    shift 4
    [ -f "$csv" ] && return
    "$build/train_tiny" "$@" --steps "$n" --seq "$length" --batch "$batch" --seed "$seed" --lr "$rate" \
        --set eval_every=50 --set eval_tokens="$tokens" --set warmup=0.1 --set weight_decay=0 --out "$out" --csv "$csv.part" "$text" > "$log"
    rm -f "$out.last"
    mv "$csv.part" "$csv"
}

# lowest CSV: the lowest validation, in nats a token and bits a byte
lowest() { awk -F, 'NR > 1 && $3 != "" && (n == "" || $3 < n) { n = $3; b = $8 } END { print n, b }' "$1"; }

# row NAME TEXT RATES OPTION..: finds the rate, repeats, prints a row
row() {
    name=$1 what=$2 rates=$3
    shift 3
    for r in $rates; do run "$name" 99 "$r" "$steps" "$@"; done
    best=$(for r in $rates; do echo "$(lowest "$folder/$name.99.$r.csv") $r"; done | sort -g | awk 'NR == 1 { print $3 }')
    for s in $(seq "$seeds"); do run "$name" "$s" "$best" "$steps" "$@"; done
    learn=$(sed -n 's/.*parameters, \([0-9]*\) of them learn.*/\1/p' "$folder/$name.1.$best.log")
    for s in $(seq "$seeds"); do lowest "$folder/$name.$s.$best.csv"; done | awk -v what="$what" -v learn="$learn" -v rate="$best" '
        { n += $1; nn += $1 * $1; b += $2; count++ }
        END { sd = count > 1 ? sqrt((nn - n * n / count) / (count - 1)) : 0
              printf "| %s | %s | %s | %.4f | %.4f | %.4f |\n", what, learn, rate, n / count, sd < 0 ? 0 : sd, b / count }'
}

echo '| what learns | parameters | rate | nats a token | standard deviation | bits a byte |'
echo '|---|---|---|---|---|---|'
run before 1 0 1 --from "$base"
lowest "$folder/before.1.0.csv" | awk '{ printf "| nothing | 0 | | %.4f | | %.4f |\n", $1, $2 }'
row delta 'δ and b' "$few" --from "$euler" --freeze '*' --train '*.delta,*.b'
row lora 'LoRA rank 4, q and v' "$few" --from "$base" --lora 4
row lora-delta 'the same, δ and b' "$few" --from "$euler" --lora 4 --train '*.delta,*.b'
row all 'all, RoPE' "$all" --from "$base"
row all-delta 'all, ComplexFormer' "$all" --from "$euler"
