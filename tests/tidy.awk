# awk -v status=N -f tests/tidy.awk tests/tidy.known LOG: what clang-tidy, which ended with status N, has found and the list does not
# know. A finding is a line with its check in brackets, the line of code, and how it gets there. Exit status 1: something is left.
FNR == NR {
    if ($0 !~ /^#/ && (at = index($0, " | "))) { checks[++n] = substr($0, 1, at - 1); codes[n] = substr($0, at + 3) }
    next
}
/^[0-9]+ (warnings?|errors?)( and [0-9]+ errors?)? generated/ { next }
/: (error|warning|fatal error): / { finding = $0; findings++; next }
finding != "" {
    known = 0
    for (i = 1; i <= n; i++) if (index(finding, "clang-analyzer-" checks[i]) && index($0, codes[i])) known = 1
    if (!known) { left++; print finding }
    finding = ""
}
!known
END {
    if (finding != "") { left++; print finding }
    if (status && !findings) { left++; print "clang-tidy ended with status " status }
    exit left > 0
}
