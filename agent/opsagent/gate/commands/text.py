"""Programs that read text and print text: cat, head, tail, grep, cut, sort, wc … They write only where an option says so."""

from __future__ import annotations

from opsagent.gate.argv import Checker, operators
from opsagent.gate.commands.simple import apply, parse, program, unknown
from opsagent.gate.grammar import grammar
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace

GREP = grammar(
    "-EFGPiyvwxchlLnHoqsabzTUuIVrR -e: -f:read -m: -A: -B: -C: -d: -D: --extended-regexp --fixed-strings --basic-regexp "
    "--perl-regexp --ignore-case --no-ignore-case --invert-match --word-regexp --line-regexp --count --color? --colour? "
    "--files-with-matches --files-without-match --max-count: --only-matching --quiet --silent --no-messages --byte-offset "
    "--with-filename --no-filename --label: --line-number --initial-tab --null --after-context: --before-context: "
    "--context: --text --binary-files: --devices: --directories: --exclude: --exclude-from:read --exclude-dir: --include: "
    "--recursive --dereference-recursive --line-buffered --null-data --regexp: --file:read --version --help --group-separator: "
    "--no-group-separator -0123456789"
)


def grep(argv: tuple[str, ...], t: Trace) -> None:
    parsed = GREP.parse(argv[1:])
    unknown(parsed, argv[0], t)
    apply(parsed.given, argv[0], t)
    named = parsed.has("-e", "-f", "--regexp", "--file")
    files = parsed.operands if named else parsed.operands[1:]
    operators(files, t)
    deep = argv[0] == "rgrep" or parsed.has("-r", "-R", "--recursive", "--dereference-recursive")
    deep = deep or "recurse" in parsed.values("-d", "--directories")
    t.say("R0", "read", f"{argv[0]} prints matching lines")
    for each in files:
        paths.read(t, each, recursive=deep)
    if deep and not files:
        t.say("R2", "path.relative", "reads the whole folder in which it happens to run")


def tr(argv: tuple[str, ...], t: Trace) -> None:
    parse(argv, grammar("-cCdst --complement --delete --squeeze-repeats --truncate-set1"), t, skip=2)
    t.say("R0", "read", "tr changes characters of its input")


def echo(argv: tuple[str, ...], t: Trace) -> None:
    operators(argv[1:], t)
    t.say("R0", "read", f"{argv[0]} prints its arguments")


def uniq(argv: tuple[str, ...], t: Trace) -> None:
    options = (
        "-cdDiuz -f: -s: -w: --count --repeated --all-repeated? --skip-fields: --group? --ignore-case --skip-chars: "
    )
    parsed = parse(argv, grammar(options + "--unique --zero-terminated --check-chars:"), t)
    t.say("R0", "read", "uniq prints lines")
    for each in parsed.operands[:1]:
        paths.read(t, each)
    for each in parsed.operands[1:]:
        paths.write(t, each)


def sort(argv: tuple[str, ...], t: Trace) -> None:
    options = (
        "-bdfghiMnRrVcCmsuz -k: -o:write -S: -t: -T:write --ignore-leading-blanks --dictionary-order --ignore-case --general-numeric-sort "
        "--ignore-nonprinting --month-sort --human-numeric-sort --numeric-sort --random-sort --random-source:read --reverse --sort: "
        "--version-sort --batch-size: --check? --compress-program:!R3 --debug --files0-from:!R2 --key: --merge --output:write --stable "
        "--buffer-size: --field-separator: --temporary-directory:write --parallel: --unique --zero-terminated"
    )
    parsed = parse(argv, grammar(options), t)
    t.say("R0", "read", "sort prints lines")
    for each in parsed.operands:
        paths.read(t, each)


def split(argv: tuple[str, ...], t: Trace) -> None:
    options = (
        "-dexu -a: -b: -C: -l: -n: -t: --suffix-length: --additional-suffix: --bytes: --line-bytes: --numeric-suffixes? "
        "--hex-suffixes? --elide-empty-files --filter:!R3 --lines: --number: --separator: --unbuffered --verbose"
    )
    parsed = parse(argv, grammar(options), t)
    for each in parsed.operands[:1]:
        paths.read(t, each)
    paths.write(t, (parsed.operands[1:] or ["x"])[0] + "aa")


def less(argv: tuple[str, ...], t: Trace) -> None:
    options = "-aABcCdeEfFgGiIJKLmMnNqQrRsSuUVwWX -b: -h: -j: -k:read -o:write -O:write -p: -P: -t: -T:read -x: -y: -z: --quit-if-one-screen"
    parsed = parse(argv, grammar(options + " --RAW-CONTROL-CHARS --no-init --chop-long-lines --LINE-NUMBERS"), t)
    t.say("R0", "read", f"{argv[0]} prints files (there is no terminal to leave it from)")
    for each in parsed.operands:
        if each.startswith("+"):
            t.say(
                "R0" if each[1:].isdigit() or each in ("+G", "+F") else "R3", "less.command", f"less starts with {each}"
            )
        else:
            paths.read(t, each)


SUMS = "-bctwz --binary --check --tag --text --zero --ignore-missing --quiet --status --strict --warn -a: --algorithm: -l: --length: --base64 --raw --untagged --debug"

COMMANDS: dict[str, Checker] = {
    "cat": program("-AbeEnstTuv --show-all --number-nonblank --show-ends --number --squeeze-blank --show-tabs --show-nonprinting"),
    "tac": program("-br -s: --before --regex --separator:"),
    "nl": program("-b: -d: -f: -h: -i: -l: -n: -p -s: -v: -w: --body-numbering: --number-format: --number-width: --starting-line-number:"),
    "head": program("-n: -c: -qvz --lines: --bytes: --quiet --silent --verbose --zero-terminated -0123456789"),
    "tail": program("-n: -c: -fFqvz -s: --lines: --bytes: --follow? --pid: --quiet --silent --retry --max-unchanged-stats: "
                    "--sleep-interval: --verbose --zero-terminated -0123456789"),
    "wc": program("-clmwL --bytes --chars --lines --words --max-line-length --files0-from:!R2 --total:"),
    "cut": program("-b: -c: -d: -f: -nsz --bytes: --characters: --delimiter: --fields: --only-delimited --output-delimiter: "
                   "--complement --zero-terminated"),
    "paste": program("-d: -sz --delimiters: --serial --zero-terminated"),
    "join": program("-a: -e: -i -1: -2: -j: -o: -t: -v: -z --check-order --nocheck-order --header --ignore-case --zero-terminated"),
    "comm": program("-123z --check-order --nocheck-order --output-delimiter: --total --zero-terminated"),
    "column": program("-tneRxJ -s: -o: -c: -N: -n: -l: -R: -H: -T: -W: -O: -r: -i: -p: --table --separator: --output-separator: --output-width: "
                      "--table-columns: --table-name: --table-right: --json --fillrows --table-truncate: --table-noextreme:"),
    "fold": program("-bs -w: --bytes --spaces --width:"), "fmt": program("-cstu -w: -g: -p: --width:"), "rev": program("-0"),
    "expand": program("-i -t: --initial --tabs:"), "unexpand": program("-a -t: --all --first-only --tabs:"),
    "od": program("-A: -j: -N: -S? -t: -v -w? -abcdfilosxBDFHILOX --endian: --address-radix: --skip-bytes: --read-bytes: --format: --output-duplicates --width?"),
    "hexdump": program("-bcCdovxXL? -e: -f:read -n: -s: --canonical --length: --skip: --no-squeezing"),
    "strings": program("-afwo -n: -t: -e: -T: -0123456789 --all --bytes: --radix: --encoding: --print-file-name"),
    "base64": program("-di -w: --decode --ignore-garbage --wrap:"), "base32": program("-di -w: --decode --ignore-garbage --wrap:"),
    "diff": program("-qsrcNuyabBdeEiltTwWpnZ -C: -U: -W: -x: -X:read -S: -F: -I: -L: -D: --brief --report-identical-files --unified? --context? "
                    "--side-by-side --suppress-common-lines --recursive --new-file --ignore-case --ignore-all-space --ignore-space-change "
                    "--ignore-blank-lines --exclude: --exclude-from:read --width: --label: --color? --text --strip-trailing-cr --left-column "
                    "--no-dereference --minimal --speed-large-files --expand-tabs --initial-tab -0123456789", "tree"),
    "cmp": program("-bls -i: -n: --print-bytes --ignore-initial: --bytes: --verbose --quiet --silent"),
    "md5sum": program(SUMS), "sha1sum": program(SUMS), "sha224sum": program(SUMS), "sha256sum": program(SUMS),
    "sha384sum": program(SUMS), "sha512sum": program(SUMS), "b2sum": program(SUMS), "cksum": program(SUMS), "sum": program("-rs --sysv"),
    "zcat": program("-fqvl --force --quiet"), "xzcat": program("-fqv"), "bzcat": program("-qvs"), "zstdcat": program("-fqv"),
    "less": less, "more": less, "zless": less, "pg": less,
    "grep": grep, "egrep": grep, "fgrep": grep, "zgrep": grep, "rgrep": grep, "xzgrep": grep, "zegrep": grep, "bzgrep": grep,
    "tr": tr, "echo": echo, "printf": echo, "uniq": uniq, "sort": sort, "split": split,
    "jq": program("-crnsSeaCMj -f:read -L:!R2 --compact-output --raw-output --null-input --slurp --sort-keys --exit-status --ascii-output --color-output "
                  "--monochrome-output --join-output --tab --indent: --arg: --raw-input -R --from-file:read --unbuffered --seq --stream --args --jsonargs", skip=1),
    "seq": program("-w -f: -s: --equal-width --format: --separator: -0123456789", "text"), "yes": program("", "text"),
    "expr": program("", "text"), "basename": program("-az -s: --multiple --suffix: --zero", "text"), "dirname": program("-z --zero", "text"),
    "iconv": program("-f: -t: -lcs -o:write --from-code: --to-code: --list --output:write --silent"),
    "look": program("-adf -t:"), "tsort": program(""), "shuf": program("-eiz -n: -o:write -r --echo --input-range: --head-count: --output:write --repeat --random-source:read"),
}  # fmt: skip
