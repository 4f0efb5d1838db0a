"""What is read of a script is what bash makes of it, word for word."""

# ruff: noqa: E501 (a snippet is one line)

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from compatcheck.shell import Script, read_script

EXPANSIONS = {
    "quotes": r"""run a"b c"'d "e'\ f\"g $'h\ti\x41\101\u00e9' $"j" "\$x \a \\ \"" 'a'\''b' "" '' a""b""",
    "continuation": "run a \\\n  b\\\nc \\\n\t--d 'e\\\nf' \"g\\\nh\"",
    "comment in a continuation": "run a \\\n  # comment\n  b\nrun c#d '#e' \\#f # g",
    "comment after a continuation": "run a \\\n  --b 1 \\\n  #--c 2 \\\nrun d",
    "plain variables": 'X=1 Y="a b"; Z=$X$Y; run $X "$Y" $Y x$X-y "${Z}" $Z "$X$X"',
    "empty words": 'E=; run $E "$E" a$E "a$E" $E$E ""$E "$@" x"$@"',
    "splitting": 'X="  a  b\tc\nd "; run $X "$X" pre$X"post" x${X}y; IFS=,; Y="a,,b,c,"; run $Y "$Y" [$Y]',
    "splitting by two": 'IFS=" ,"; Y=" a , b,,c "; run $Y x$Y; IFS=:; Z=:a::b:; run $Z; IFS=; run $Z $Y',
    "defaults": 'unset U; E=; S=s; run ${U:-d} ${U-d} "${E:-d e}" ${E-d} ${S:-d} ${S:+a b} "${S:+a b}" ${U:+a} ${U+a} x${E:+a}y',
    "assigned defaults": 'run ${U:=d} $U "${V=a b}" $V; E=; run ${E=x} ${E:=y} $E',
    "nested defaults": 'unset U; A=a; run ${U:-${V:-$A}} "${U:-"b c"}" ${U:-"b c" d} "${U:-$A/x}" ${U:-} "${U:-\'q\'}" ${U:-\'q r\'}',
    "defaults with braces": 'run "${U:-{a\\}}" ${U:-a\\}b}',
    "prefixes": 'X=a/b/c.tar.gz; run ${X#*/} ${X##*/} ${X%.*} ${X%%.*} ${X#a} ${X%z} ${X#q} "${X#"a/"}" ${X%[a-z]} ${X##?}',
    "prefix of a variable": 'X=foobar P=foo S="*"; run ${X#$P} ${X%"$S"} ${X%$S} ${X##$P*}',
    "replacements": 'X=a.b.a.c; run ${X/a/z} ${X//a/z} ${X//.} ${X/#a/z} ${X/%c/z} ${X//[ab]/_} ${X/a./} ${X//\\./\\/} "${X//a/ }"',
    "replacement with a slash": 'X=a/b/c; run ${X//\\//-} "${X//\\//-}" ${X/b/"/"} ${X////_}',
    "lengths": "unset U; X=hello E=; A=(a bb ccc); run ${#X} ${#E} ${#A[@]} ${#A[2]} ${#A} ${#U}; set -- 1 2; run ${#} ${#@} $#",
    "slices": "X=0123456789; N=3; run ${X:2} ${X:2:3} ${X: -3} ${X: -3:2} ${X:$N} ${X:N+1:N} ${X:2:-2} ${X:20} ${X:(-2)}",
    "case": "X=hELLO; run ${X^} ${X^^} ${X,} ${X,,}",
    "indirection": 'A=B B=c; D=(x y); E="D[1]"; run ${!A} ${!E}; N=2; set -- p q r; run ${!N}',
    "arrays": 'A=(1 "2 3" $(echo 4 5)); A+=(6 7); A[9]=z; run "${A[@]}" ${A[1]} "${A[1]}" $A ${A[-1]} "${A[*]}" ${A[@]}',
    "array of lines": 'A=(\n  --a 1 # one\n  # --b 2\n  --c "x y"\n)\nA+=(--d)\nrun "${A[@]}"',
    "array slices": 'A=(a b c d); run "${A[@]:1:2}" ${A[@]:2} "${!A[@]}" "${A[@]/#/x}" "${A[@]: -1}" "${A[@]#a}"',
    "array with places": 'A=([2]=c [0]=a d); run "${A[@]}" "${!A[@]}" "${A[1]}"; unset A; run "${A[@]}" x',
    "array in words": 'A=(1 2); E=(); run "a${A[@]}b" "${E[@]}" "x${E[@]}y" a"${A[*]}" ${E[@]} "${E[*]}"',
    "array sizes in arithmetic": "A=(4 5 6); i=1; run $((A[0]+A[i])) ${A[i+1]} ${A[$i]} $((${#A[@]}*2))",
    "associative arrays": 'declare -A M=([a]=1 ["b c"]=2); M[d]=3; K=a; run "${M[a]}" "${M[b c]}" "${M[$K]}" ${#M[@]} "${M[none]}"',
    "appending": 'X=a; X+=b; X+=" c"; run "$X"; declare -i N=1; N+=2; N=N*2; run $N; A=(x); A+=y; run "${A[@]}"',
    "arithmetic": "x=5 y=3; run $((x+y*2)) $((x/y)) $((x%y)) $((-7/2)) $((-7%3)) $((2**10)) $((x>y)) $((x>y?1:2)) $((1<<4|3))",
    "more arithmetic": "x=7; run $(( (x+1) * 2 )) $((x++)) $x $((++x)) $((x+=2)) $((x--)) $x $((0x1f)) $((010)) $((16#ff)) $((!x)) $((~x))",
    "arithmetic on text": 'e="1+2"; u=; run $((e*2)) $((u+1)) $(("e")) $[1+2] $((1,2)) $((x=5,x*2)) $x $((5&&0||1)) $((3==3))',
    "arithmetic of expansions": 'N="4"; A=(1 2); run $(($N*${#A[@]})) $((${U:-8}/2)) $(( $(echo 3) + 1 )) $((N<<1)) $((N>=4&&N<8))',
    "braces": 'run {a,b}c x{1..3} {3..1} {01..10..4} {a..e..2} {a,b}{c,d} {a} {} a{,b} {a,{b,c}} "{a,b}" {1..3}$((1+1)) {x,y\\,z}',
    "braces with variables": 'N=3; A={a,b}; run {1..$N} $A {$N,x} a{"b c",d}e pre{$N}post ${N}{a,b}',
    "brackets": 'run actor.ids=[1,2] [a-z] "[x]" data=[a,b] a[ b]',
    "globs in quotes": 'P="*.py"; run "$P" "*" \'?\' \\* x\\?',
    "escaped words": r"run \$HOME \"a\" a\ b \\ \# 'it'\''s' \~ \{a,b\} a\=b",
    "json words": 'N=2; run --config \'{"a": 1, "b": [1,2]}\' "{\\"a\\": $N}" --x="{\'a\': ${N}}"',
    "tilde in the middle": "run a~b x=a~ \"~\" '~/x' a/~",
    "command substitution": 'X=$(echo a b); run $X "$X" "$(printf "%s-%d" x 3)" $(echo "p  q") "$(echo "p  q")" `echo r` "`echo \\"s t\\"`"',
    "nested substitution": 'run $(basename $(dirname /a/b/c.sh)) "$(basename "/a/b c.sh" .sh)" "$(echo $(echo x; echo y))" $(echo "$(echo "z")")',
    "trailing newlines": 'X=$(printf "a\\n\\n"); run "$X" "$(echo; echo b)" "$(true)"',
    "filters": 'run $(seq 3) $(seq 2 2 6) "$(seq 3 -1 1)" $(expr 2 + 3) $(expr 2 \\* 3) $(expr 1024 + 3072 + 1000) $(expr 7 - 2 \\* 3) $(echo a,b,c | tr "," " ") $(echo a:b | cut -d: -f2)',
    "counting": 'D=0,1,2,3; run $(echo $D | tr "," "\\n" | wc -l) $(echo $D | tr -cd , | wc -c) $(echo "a b" | wc -w) $(echo $D | tr -d ,)',
    "lines": 'run $(printf "a\\nb\\nc\\n" | head -n 1) $(printf "a\\nb\\nc\\n" | tail -1) $(printf "a b\\n" | cut -d" " -f2)',
    "printf": 'printf -v X "%03d:%s" 7 a; run "$X" "$(printf "%s\\n" a b)" "$(printf "%5s|%-5s|" a b)" "$(printf "100%%")" "$(printf "%s-" 1 2 3)"',
    "echo": 'run "$(echo -n a; echo b)" "$(echo -e "a\\tb")" "$(echo "a\\tb")" "$(echo -x)" "$(echo -ne "c\\n")d"',
    "here-documents": 'X=1; read -r -d "" T <<EOF\na $X ${X:-2} $((X+1)) "q" \\$X \\\nb\nEOF\nrun "$T"; run "$(cat <<\'E\'\n$X "y" \\n\nE\n)"',
    "here-document with tabs": 'run "$(cat <<-E\n\ta\n\t\tb $((1+1))\n\tE\n)" after',
    "here-document in the middle": "cat <<A > f1; run x $(cat f1); cat <<B\none\nA\ntwo\nB\nrun y",
    "here-strings": 'IFS=, read -ra A <<< "0,1,2"; run ${#A[@]} "${A[@]}"; read X Y <<< "a b c"; run "$X" "$Y"; read -r Z <<< " p "; run "$Z"',
    "reading by commas": 'IFS=, read -r X Y Z <<< "1,2"; run "$X" "$Y" "$Z"; IFS=: read -r P Q <<< "a:b:c"; run "$P" "$Q"; run "$IFS"',
    "mapfile": 'mapfile -t L < <(printf "a b\\nc\\n"); run "${L[@]}" ${#L[@]}; readarray -t M <<< "x"; run "${M[@]}"',
    "files written": 'echo "a b" > f; printf "c\\n" >> f; run "$(cat f)" $(cat f | wc -l); cat f | tee g > /dev/null; run "$(<g)"',
    "unicode": 'X="naïve café"; run ${#X} "${X:0:5}" ${X/ï/i} é{ü,ö}',
    "assignment tricks": "A=1 B=$A; run $A $B; C=$A$B D='x y'; run $C \"$D\"; run A=3 $A; E=a=b=c; run $E --x=$E; _z9=1; run $_z9",
    "redirections anywhere": "run a > /dev/null b 2>&1 c; > /dev/null run d; run e 2>/dev/null >&2; run 3 >/dev/null 4>&1 5",
    "positional": 'set -- a "b c" d; run "$@" $# "$1" "${2}" "$*" ${@:2} "${@:2:1}" $@; shift; run "$@"; shift 2; run "$@" x$#; set --; run "$@"',
    "special": 'true; run $?; set -- {1..11}; run ${10} $10 "${11}" "${@: -1}"',
    "quoted dollar": 'run "a$" $ a$ "$" "a $ b" \'$x\' "\\$x" $\'a$b\' "100%"',
    "eval": 'A="run a \\"b c\\""; eval $A; eval "$A d"; X=Y; Y=z; eval run \\$$X; eval "V_$X=3"; run $V_Y',
    "command built as text": 'OPTS="--a 1"; OPTS="$OPTS --b \'x y\'"; CMD="run $OPTS"; $CMD; eval "$CMD"; eval $CMD',
    "command in an array": 'C=(run --a 1); [[ -n x ]] && C+=(--b "2 3"); "${C[@]}" last',
    "extended patterns": "shopt -s extglob\nX=aab.py; run ${X%.@(py|sh)} ${X##+(a)} ${X/?(a)a/z}",
}

STATEMENTS = {
    "functions of a command's name": 'echo() { builtin echo "a $1"; }; run $(echo b)',
    "if": 'X=a; if [ "$X" = a ]; then run 1; elif [ "$X" = b ]; then run 2; else run 3; fi; if false; then run 4; fi; run $?',
    "elif": "X=c; if [ $X = a ]; then run 1; elif [ $X = b ]; then run 2; elif [ $X == c ]; then run 3; else run 4; fi",
    "tests": 'x=5; e=; [ $x -gt 3 ] && run a; [ -z "$e" ] && run b; [ -n "$e" ] || run c; [ ! -z "$x" ] && run d; test 1 -eq 1 && run e; [ "$e" ] || run f',
    "test with and": "x=5; [ $x -gt 3 -a $x -lt 9 ] && run a; [ $x -gt 9 -o $x = 5 ] && run b; [ \\( $x = 5 \\) ] && run c; [ ! $x = 5 ] || run d",
    "double brackets": 'X="a b"; [[ $X == a* ]] && run a; [[ $X == "a*" ]] || run b; [[ $X =~ ^a.b$ ]] && run c; [[ -z $U && -n $X ]] && run d; [[ ! $X == c || 1 -gt 2 ]] && run e',
    "double bracket comparisons": 'N=08; M=5; [[ $M -ge 5 && $M -le 5 ]] && run a; [[ "$M" < "6" ]] && run b; [[ $M != 6 ]] && run c; [[ M -eq 5 ]] && run d; [[ (a == b) || (c == c) ]] && run e',
    "regular expressions": '[[ "7b-x" =~ ^([0-9]+)b-(.*)$ ]] && run "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}"; R="^a+$"; [[ aaa =~ $R ]] && run y; [[ a.c =~ a\\.c ]] && run z; [[ abc =~ "a.c" ]] || run q',
    "patterns": 'X=Qwen2.5-7B; [[ $X == *7B* ]] && run a; [[ $X == *"7B"* ]] && run b; [[ $X = Qwen[23]* ]] && run c; [[ $X == *@(7B|8B) ]] && run d; P="*7B"; [[ $X == $P ]] && run e; [[ $X == "$P" ]] || run f',
    "case": 'for m in a bb ccc d; do case $m in a) run 1;; b*|c?) run 2;; "ccc") run 3;; *) run 4 ;; esac; done; case x in (x) run 5; esac',
    "case goes on": "case a in a) run 1;;& b) run 2;; [a-c]) run 3;; *) run 4;; esac; case a in a) run 5;;& b) run 6;; esac",
    "case falls through": "case a in a) run 1;& b) run 2;; c) run 3;; esac; case x in y) run 4;; esac; run $?",
    "for": 'for i in 1 "2 3" {4..5} $(seq 6 7); do run $i; done; run "$i"; for x in; do run none; done; L="p q"; for y in $L; do run $y; done',
    "c for": "for ((i=0; i<3; i++)); do run $i; done; for ((i=8;i>0;i/=2)) ; do run $i; done; n=2; for (( j = 1; j <= n; j++ )); do run $j; done; run $i",
    "for over arguments": 'set -- a "b c"; for x in "$@"; do run "$x"; done; for y; do run "$y"; done; for z do run $z; done',
    "while": "i=0; while [ $i -lt 3 ]; do run $i; i=$((i+1)); done; until [[ $i -eq 0 ]]; do ((i--)); run $i; done; while ((i<2)); do let i++; run $i; done",
    "break and continue": "for i in 1 2 3 4; do [ $i = 2 ] && continue; [ $i = 4 ] && break; run $i; done; for a in 1 2; do for b in 1 2; do [ $b = 2 ] && continue 2; run $a$b; done; done; for a in 1 2; do for b in 1 2; do break 2; done; run no; done; while true; do break; done; run end",
    "functions": 'f() { local x=$1; y=$2; run "$x" "$@" $#; return 0; }; x=o; f a "b c"; run $? $x "$y"; function g { run g $1; }; g 1; g; function h() { f "$@"; }; h p q; run $x',
    "functions return": 'f() { if [ "$1" = a ]; then run a; return; fi; run b; return 1; run never; }; f a; f b || run failed; f a && run ok',
    "function output": 'f() { echo "x-$1"; }; X=$(f 3); run $X "$(f "a b")"; g() { local r; r=$(($1*2)); echo $r; }; run $(g 4)',
    "function scope": 'v=1; f() { local v=2; g; run $v; }; g() { run $v; v=3; }; f; run $v; h() { w=5; unset v; }; h; run $w "${v:-gone}"',
    "shift": 'f() { while [ $# -gt 0 ]; do case $1 in --a) A=$2; shift 2;; --b) B=1; shift;; --c=*) C=${1#*=}; shift;; *) R+=("$1"); shift;; esac; done; run "$A" "$B" "$C" "${R[@]}"; }; R=(); f --a 1 --b x --c=3 y',
    "getopts": 'while getopts "a:bc" o -a 1 -bc x; do run "$o" "$OPTARG"; done; OPTIND=1; set -- -n 4 -v rest; while getopts ":n:v" o; do case $o in n) N=$OPTARG;; v) V=1;; esac; done; shift $((OPTIND-1)); run $N $V "$@"',
    "subshells": "X=1; (X=2; run $X; exit; run no); run $X; { X=3; run $X; }; run $X; (cd / && run in)",
    "pipes": 'X=1; echo a | { read Y; X=2; run "$X"; }; run $X; echo b | while read l; do run in; done; run "${l:-none}"; true | run x | cat',
    "and or": "true && run a; false && run b; false || run c; true || run d; true && false || run e; ! false && run f; ! true || run g; false || { run h; run i; }; [ 1 = 1 ] && [ 2 = 3 ] || run j",
    "export": 'export A=1 B="x y"; declare -x C=3; run $A "$B" $C; export D; D=4; readonly E=5; run $D $E; declare F=$A G="a b"; run $F "$G"; typeset H=1; run $H; export I=a$A"b c"',
    "unset": 'X=1; unset X; run "${X:-none}" ${X+set}; A=(1 2); unset A; run "${#A[@]}"; f() { run f; }; unset -f f; Y=; run "${Y-unset}" "${Y:-empty}"',
    "prefix assignments": 'X=1; X=2 run $X; run $X; f() { run $X; }; X=3 f; run $X; IFS=, read A B <<< "p,q"; run "$A" "$B" "$IFS"',
    "let": 'let x=5+3; run $x; let "y = x * 2" z=y-1; run $y $z; let x++; run $x; let 0 || run zero; ((x > 5)) && run big; ((x = x > 100 ? 1 : 2)); run $x; (( x += 3, y = x )); run $x $y',
    "background": "run a & wait; run b; X=1; X=2 & wait; run $X",
    "exit": "run a; if true; then exit 0; fi; run never",
    "exit in a function": "f() { run a; exit; }; f; run never",
    "exec": "exec 2>/dev/null; run a; set -e; set -x; set -euo pipefail; run b; trap 'run t' USR1; run c",
    "noglob": "set -f; run * a?; set +f",
    "coproc": "coproc run a; wait; coproc X { run b; }; wait; coproc if true; then run c; fi; wait",
    "time and negation": "time run a; ! run b; time -p run c",
    "groups with redirections": "{ run a; run b; } > /dev/null 2>&1\nfor i in 1 2; do run $i; done >> /dev/null\nif true; then run c; fi 2>&1 | cat\n(run d) > /dev/null\nrun e > /dev/null | cat\nrun f > /dev/null | cat\nrun g",
    "joined lines": "true &&\n  run b ||\n  true\nrun d |\n cat\nif [ 1 = 1 ] &&\n   [ 2 = 2 ]; then run e; fi",
    "keywords as words": "run if then else fi for do done case esac while in function { } ! time; echo done; run echo if",
    "strange layout": "if true\nthen\n  run a\nfi; for i in 1\ndo run $i; done\ncase x in\n  x )\n    run b\n  ;;\nesac\nf ()\n{\n  run c\n}\nf;f",
    "options in an array by case": 'M=lora; ARGS=(--model x); case "$M" in full) ARGS+=(--lr 1e-5);; lora) ARGS+=(--lr 1e-4 --rank "16");; esac; if [[ "${#ARGS[@]}" -gt 4 ]]; then ARGS+=(--many); fi; run "${ARGS[@]}"',
    "sweep": 'for lr in 1e-5 1e-6; do for bs in 4 8; do name="lr${lr}_bs$((bs*2))"; run --name $name --lr $lr --bs $bs; done; done',
    "ternary default": 'GPUS=${GPUS:-8}; [ "$GPUS" -gt 4 ] && MICRO=1 || MICRO=2; NODES=${NODES:-$((GPUS/4))}; run $MICRO $NODES',
    "last line without end": "run a\nrun b \\",
}


def words_of(script: Script) -> list[tuple[str | None, ...]]:
    return [
        tuple(word.text for word in command.words[1:]) for command in script.commands if command.words[0].text == "run"
    ]


@pytest.mark.parametrize("name", [*EXPANSIONS, *STATEMENTS])
def test_every_word_is_bashs(name, bash) -> None:
    text = {**EXPANSIONS, **STATEMENTS}[name]
    assert words_of(read_script("x.sh", text, arguments=())) == bash(text)


ARGUMENTS = {
    "parsing loop": (
        'A=1 B=no\nwhile [[ $# -gt 0 ]]; do\n  case "$1" in\n    --a|-a) A="$2"; shift 2;;\n    --b) B=yes; shift;;\n    *) break;;\n  esac\ndone\nrun $A $B "$@"',
        ["--a", "7", "--b", "rest", "x y"],
    ),
    "usage": ('if [ $# -lt 2 ]; then echo usage; exit 1; fi\nrun "$1" ${2:-d} ${3:-e} "${@:2}" $#', ["p q", "r"]),
    "usage not met": ('if [ $# -lt 2 ]; then echo usage; exit 1; fi\nrun "$1"', ["p"]),
    "getopts": (
        'while getopts "n:v" o; do case $o in n) N=$OPTARG;; v) V=1;; *) exit 1;; esac; done\nrun $N $V',
        ["-vn3"],
    ),
    "pairs": (
        'for a in "$@"; do case $a in *=*) declare "${a%%=*}=${a#*=}";; esac; done; run $X "$Y"',
        ["X=1", "Y=a b"],
    ),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_are_read_as_bash_reads_them(name, bash) -> None:
    text, arguments = ARGUMENTS[name]
    assert words_of(read_script("x.sh", text, arguments=arguments)) == bash(text, arguments)


def test_environment_is_taken_as_given(bash) -> None:
    text = 'run ${N:-1} "$M" ${U:-d}; export N; N=$((N*2)); [ -n "$M" ] && run $N; env_is=$N; run $env_is'
    given = {"N": "4", "M": "a b"}
    assert words_of(read_script("x.sh", text, variables=given, arguments=())) == bash(text, variables=given)


NAMES = st.sampled_from(["A", "B", "U"])
TEXTS = st.sampled_from(["", "a", "a b", "x/y.z", "12", "a,b", "*", " lead", "tr ", "é"])
PATTERNS = st.sampled_from(["a", "*", "?", "*/", ".*", "[a-x]", "b", "\\*", '"*"', "é"])
OPERATORS = st.one_of(
    st.builds("{}{}".format, st.sampled_from([":-", "-", ":+", "+", "#", "##", "%", "%%"]), PATTERNS),
    st.builds("{}{}/{}".format, st.sampled_from(["/", "//", "/#", "/%"]), PATTERNS, st.sampled_from(["", "z", "q r"])),
    st.sampled_from(["", "^", "^^", ",", ",,", ":1", ":0:2", ": -1"]),
)
PARTS = st.one_of(
    st.builds("${{{}{}}}".format, NAMES, OPERATORS),
    st.builds('"${{{}{}}}"'.format, NAMES, OPERATORS),
    st.builds("${}".format, NAMES),
    st.builds("${{#{}}}".format, NAMES),
    st.sampled_from(
        [
            "a",
            "'b c'",
            '"d e"',
            "{1,2}",
            "x=",
            "--f",
            "\\ ",
            '""',
            "$((1+2))",
            '"$@"',
            "$#",
            "{1..3}",
            '"${L[@]}"',
            "${L[1]}",
        ]
    ),
)
WORDS = st.lists(st.lists(PARTS, min_size=1, max_size=3).map("".join), min_size=1, max_size=4).map(" ".join)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=TEXTS, second=TEXTS, words=WORDS, arguments=st.lists(TEXTS, max_size=2))
@example(first="", second="a b", words='${A:-*} "${B#"*"}"', arguments=[])
def test_a_known_word_is_never_another_than_bashs(bash, first, second, words, arguments) -> None:
    text = f"unset U; A='{first}'; B='{second}'; L=(1 '2 3'); run {words}"
    expected = bash(text, arguments)
    found = words_of(read_script("x.sh", text, arguments=arguments))
    if len(expected) == len(found) == 1 and None not in found[0]:
        assert found == expected
    else:
        assert len(found) <= 1  # a pattern of file names, or bash refuses the expansion


NUMBERS = st.integers(0, 12).map(str) | st.sampled_from(["n", "m", "0x1f", "010", "16#a"])
TERMS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.builds(
            "{} {} {}".format,
            inner,
            st.sampled_from(
                [
                    "+",
                    "-",
                    "*",
                    "/",
                    "%",
                    "**",
                    "<<",
                    ">>",
                    "<",
                    ">",
                    "<=",
                    ">=",
                    "==",
                    "!=",
                    "&",
                    "|",
                    "^",
                    "&&",
                    "||",
                    ",",
                ]
            ),
            inner,
        ),
        st.builds("({})".format, inner),
        st.builds("{} ? {} : {}".format, inner, inner, inner),
        st.builds("{}{}".format, st.sampled_from(["- ", "!", "~", "+ "]), inner),
        st.builds(
            "{} {} {}".format, st.sampled_from(["n", "m"]), st.sampled_from(["=", "+=", "-=", "*=", "<<="]), inner
        ),
        st.sampled_from(["n++", "--m", "++n", "m--"]),
    ),
    max_leaves=8,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(expression=TERMS)
def test_arithmetic_is_bashs(bash, expression) -> None:
    text = f'n=3; m="n+1"; x=$(({expression}))\nrun "$x" "$n" "$m"'
    expected = bash(text)
    found = words_of(read_script("x.sh", text, arguments=()))
    if expected and None not in found[0]:
        assert found == expected
