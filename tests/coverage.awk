# The texts of gcov -b -c -t of several builds of cmha.h, added up: prints the coverage, and into the file `report` what is missing.
# A line is known by its number, a way out of a condition by its line and its place among those of the line.
FNR == 1 { line = 0 }
/^ *[-0-9#=*]+: *[0-9]+:/ {
    split($0, part, ":")
    count = part[1]
    gsub(/ /, "", count)
    if (part[2] + 0 == 0) { if (part[3] == "Source") ours = part[4] ~ /cmha\.h$/; next }
    if (!ours) next
    if (part[2] + 0 != line) k = 0
    line = part[2] + 0
    text[line] = substr($0, length(part[1]) + length(part[2]) + 3)
    if (count == "-") next
    code[line] = 1
    if (count + 0 > 0) run[line] = 1
    if (line > last) last = line
}
ours && /^branch/ {
    way = line SUBSEP k++
    if (!(way in ways)) { ways[way] = 0; out[line]++; branches++ }
    if ($3 == "taken" && $4 + 0 > 0 && !ways[way]) { ways[way] = 1; taken[line]++; all_taken++ }
}
END {
    if (!last) { print "coverage: gcov has said nothing"; exit 1 }
    for (i = 1; i <= last; i++) { lines += code[i]; ran += run[i] }
    print "Lines of cmha.h that no test runs (#), and those with ways out of a condition that none takes (?, how many)" > report
    for (i = 1; i <= last; i++) {
        if (code[i] && !run[i]) printf "#     %5d %s\n", i, text[i] > report
        else if (out[i] > taken[i]) printf "? %3d %5d %s\n", out[i] - taken[i], i, text[i] > report
    }
    printf "cmha.h: %.2f %% of %d lines are covered (at least 95), %.1f %% of %d branches; the others are in %s\n", 100 * ran / lines,
        lines, 100 * all_taken / branches, branches, report
    exit ran < 0.95 * lines
}
