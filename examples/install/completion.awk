# awk -v COMMAND=cmha-generate -f completion.awk < what --help prints: its bash completion. Options are the words that begin with -- at the
# start of a line; values of an option the words that its explanation begins with, as in "f32, bf16 or int8: ..", "a | b | c"; commands
# the words at the start of a line of a program whose first line asks for a COMMAND.
NR == 1 && / COMMAND/ { commands = 1 }
NR == 1 && / SECTION/ { commands = 1 }
/^ *--[a-z0-9-]+( |$|=)/ {
    match($0, /--[a-z0-9-]+/)
    option = substr($0, RSTART, RLENGTH)
    if (!(option in known)) order[++n] = option
    known[option] = 1
    text = substr($0, RSTART + RLENGTH)
    sub(/^ +/, "", text)
    if (match(text, /^[^ ]+  +/)) text = substr(text, RLENGTH + 1) # the default stands between
    values[option] = words(text)
    if (option == "--model" && text ~ /kinds/) listed_model = 1
    next
}
/^Kinds of attention: / { for (i = 4; i <= NF; i++) kinds = kinds " " $i }
/^Kinds of attention, / { listed = 1; next }
/^ *$/ { listed = 0 }
listed && /^  [a-z]/ { kinds = kinds " " $1 }
commands && /^  [a-z]+  +[a-z]/ { given = given (given == "" ? "" : " ") $1 }

# "f32, bf16, int8 or int4: how .." is f32 bf16 int8 int4
function words(text,   list) {
    if (!match(text, /^[a-z0-9_-]+((, | \| )[a-z0-9_-]+)*((,)? (or|\|) [a-z0-9_-]+|( \| [a-z0-9_-]+))/)) return ""
    list = substr(text, 1, RLENGTH)
    text = substr(text, RLENGTH + 1)
    if (text !~ /^([:;,]|$)/) return ""
    gsub(/,| or | \| /, " ", list)
    gsub(/ +/, " ", list)
    return list
}

END {
    sub(/^ /, "", kinds)
    if ("--attention" in known && kinds != "") values["--attention"] = kinds
    if ("--model" in known && listed_model) values["--model"] = kinds
    name = COMMAND
    gsub(/[^a-zA-Z0-9]/, "_", name)
    if (!("--version" in known)) order[++n] = "--version"
    all = order[1]
    for (i = 2; i <= n; i++) all = all " " order[i]
    print "# bash completion of " COMMAND ", made from its --help"
    print "_" name "() {"
    print "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}"
    print "    COMPREPLY=()"
    print "    case $before in"
    for (i = 1; i <= n; i++)
        if (values[order[i]] != "") print "        " order[i] ") COMPREPLY=($(compgen -W '" values[order[i]] "' -- \"$word\")); return;;"
    print "        *) ;;"
    print "    esac"
    print "    case $word in"
    print "        -*) COMPREPLY=($(compgen -W '" all "' -- \"$word\"));;"
    if (given != "") print "        *) if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W '" given "' -- \"$word\")); fi;;"
    else print "        *) ;;"
    print "    esac"
    print "}"
    print "complete -o default -F _" name " " COMMAND
}
