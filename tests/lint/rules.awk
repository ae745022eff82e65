# The house rules that can be seen in the text of C files, one message a line:
#     path:line: RULE: what is wrong
# Paths are relative to the project: src/FOLDER/FILE or tests/FOLDER/FILE. Runs with mawk and gawk
# under LC_ALL=C. Comments and the insides of strings are taken out before names are looked for.
# Functions are found by the formatter's layout: they begin and end in the first column.

BEGIN {
    max_file = 500; max_function = 60; max_columns = 100

    split("base 0 tensor 1 math 2 comm 2 param 3 nn 4 optim 4 data 4 checkpoint 4 " \
          "config 5 run 6 bench 7 cli 8", word, " ")
    for (i = 1; i in word; i += 2) layer[word[i]] = word[i + 1]

    owner["mpi.h"] = "^src/comm/"
    owner["cblas.h"] = "^src/math/(gemm|blas_threads)\\.c$"
    owner["openblas_config.h"] = "^src/math/gemm\\.c$"
    owner["hdf5.h"] = "^src/checkpoint/|^src/data/arrays\\.c$"
    owner["ini.h"] = "^src/config/"

    # where a function may be called: nowhere, or only in paths that match
    split("strcpy strcat sprintf vsprintf gets atoi atol atof strtok rand srand alloca", word, " ")
    for (i = 1; i in word; i++) allowed[word[i]] = "^$"
    split("exit _exit quick_exit abort", word, " ")
    for (i = 1; i in word; i++) allowed[word[i]] = "^src/cli/|^tests/"
    allowed["_exit"] = allowed["_exit"] "|^src/base/watch\\.c$" # its purpose
    split("printf vprintf puts putchar perror", word, " ")
    for (i = 1; i in word; i++) allowed[word[i]] = "^src/cli/|^src/base/log\\.c$|^tests/"
}

function report(line, rule, message) { print path ":" line ": " rule ": " message }

# The line without comments and without the insides of strings and characters; keeps in_comment.
function code_of(line,    out, at, mark, end) {
    out = ""
    while (line != "") {
        if (in_comment) {
            end = index(line, "*/")
            if (!end) return out
            line = substr(line, end + 2)
            in_comment = 0
            continue
        }
        at = match(line, /"|'|\/\*|\/\//)
        if (!at) return out line
        mark = substr(line, at, 2)
        out = out substr(line, 1, at - 1)
        line = substr(line, at)
        if (mark == "//") return out
        if (mark == "/*") {
            in_comment = 1
            line = substr(line, 3)
        } else {
            mark = substr(mark, 1, 1)
            out = out mark mark
            if (mark == "'") match(line, /^'([^'\\]|\\.)*'/)
            else match(line, /^"([^"\\]|\\.)*"/)
            line = RLENGTH > 0 ? substr(line, RLENGTH + 1) : ""
        }
    }
    return out
}

function check_include(line,    name, parts, target) {
    name = line
    sub(/^[ \t]*#[ \t]*include[ \t]*[<"]/, "", name)
    sub(/[>"].*$/, "", name)
    if (!in_src) return
    if (line ~ /</) {
        if ((name in owner) && path !~ owner[name])
            report(FNR, "layers", "<" name "> belongs to " owner[name])
    } else if (name != "build_id.h") {
        split(name, parts, "/")
        target = parts[1]
        if (name !~ /^[a-z_0-9]+\/[a-z_0-9]+\.(h|inc)$/ || !(target in layer))
            report(FNR, "layers", "write the include \"" name "\" as \"folder/file.h\"")
        else if (target != folder && layer[target] >= layer[folder])
            report(FNR, "layers", folder " (" layer[folder] ") must not see " target " (" \
                   layer[target] ")")
    }
}

function check_calls(code,    name, rest) {
    rest = code
    while (match(rest, /[A-Za-z_][A-Za-z_0-9]*[ \t]*\(/)) {
        name = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        sub(/[ \t]*\($/, "", name)
        if ((name in allowed) && path !~ allowed[name])
            report(FNR, "banned", name "() is not used here")
        if (name == "fprintf" && in_src && rest ~ /^std(out|err)[ ,]/ && path !~ allowed["printf"])
            report(FNR, "banned", "print through base/log.h")
    }
}

# Sums whose order is not ours, and switches that change what a sum means.
function check_sums(code) {
    in_pragma = in_pragma || code ~ /^[ \t]*#[ \t]*pragma/
    if (in_pragma && code ~ /[^a-z_]reduction[ \t]*\(/)
        report(FNR, "banned", "reduction() adds in no fixed order")
    if (in_pragma && code ~ /FP_CONTRACT|GCC[ \t]+optimize|float_control/)
        report(FNR, "banned", "floating-point rules are set in the Makefile alone")
    if (code ~ /__attribute__.*optimize/)
        report(FNR, "banned", "floating-point rules are set in the Makefile alone")
    if (in_src && folder != "comm" && code ~ /(^|[^A-Za-z0-9_])MPI_SUM([^A-Za-z0-9_]|$)/)
        report(FNR, "banned", "MPI_SUM outside src/comm")
    in_pragma = in_pragma && code ~ /\\$/
}

function check_function(code) {
    sub(/[ \t]+$/, "", code)
    if (body) {
        if (code ~ /^}/) {
            if (FNR - start + 1 > max_function)
                report(start, "size", "function of " FNR - start + 1 " lines (" max_function ")")
            body = start = 0
        }
        return
    }
    if (!start && code ~ /^[A-Za-z_].*\(/ && code !~ /^(typedef|struct|enum|union)[ \t]/) start = FNR
    if (start && code ~ /=[ \t]*\{$/) start = 0
    if (start && code ~ /\{$/) body = 1
    else if (start && code ~ /[;}]$/) start = 0
}

function end_of_file() {
    if (path != "" && lines > max_file)
        report(lines, "size", "file of " lines " lines (" max_file ")")
}

FNR == 1 {
    end_of_file()
    path = FILENAME
    sub(/^\.\//, "", path)
    in_src = path ~ /^src\//
    split(path, part, "/")
    folder = part[2]
    in_comment = in_pragma = body = start = 0
    if (in_src && !(folder in layer)) report(1, "layers", "no such folder in the house: " folder)
    if (path ~ /\.h$/ && $0 !~ /^\/\*/)
        report(1, "headers", "a header opens with what its module owns")
}

{
    lines = FNR
    raw = $0
    columns = length(raw) - gsub(/[\200-\277]/, "", raw) # continuation bytes of UTF-8
    if (columns > max_columns) report(FNR, "size", "line of " columns " columns (" max_columns ")")
    if ($0 ~ /TODO|FIXME/) report(FNR, "banned", "unfinished work is filed, not written into code")

    commented = in_comment
    code = code_of($0)
    if (!commented && $0 ~ /^[ \t]*#[ \t]*include/) check_include($0)
    check_calls(code)
    check_sums(code)
    check_function(code)
}

END { end_of_file() }
