"""The commands of this package refuse by one line and exit code 2, before anything is made."""

import shlex
from collections.abc import Mapping
from pathlib import Path

import pytest

from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.observe.recorder import Entry
from fairseq_plugins.tools.text.__main__ import main as text
from tests.pipeline.making import write_run
from tests.scripts.running import times
from tests.texts import write

RECIPE = "multi30k_de_en/admin_3e3d"
PREPARED = "the prepared directory; give "
COMPARE = "compare data out multi30k_de_en/admin_3e3d --dry-run"
TABLE = "reproduce Admin 'Table 2' --dry-run"
BOTH = "wmt14_en_de/admin_6e6d headline/admin_6e6d"
PREPROCESS = "preprocess -s de -t en --trainpref one --destdir made"
PREPARE = "prepare out --train one --valid one"
SYSTEMS = "score --references ref --systems"
YAML = "hydra-train --config-dir yaml"
AVERAGE = "unknown --average 'last-epoch=10'; legal values: last-epochs=N"
WHICH = "which files? Give HYP REF [REF ...], or --systems NAME=HYP ... --references REF ..."
UNEQUAL = "the references 30: sentence k must be the translation of sentence k"
INPUT = "the output is also an input; choose another name"

REFUSED: Mapping[str, str] = {
    "": "no command given; one of: train, ",
    "trian": "unknown command 'trian' (did you mean 'train'?); legal: train, hydra-train, ",
    "xyzzy": "unknown command 'xyzzy'; legal: train, ",
    f"{PREPROCESS} --user-dir absent": "no such --user-dir: {here}/absent",
    f"{PREPROCESS} --user-dir json": "Failed to import --user-dir={here}/json because the corresponding module name ",
    "train data --user-dir copy": "--user-dir copy: another copy of this package than ",
    "generate data --user-dir": "argument --user-dir: expected one argument",
    "generate data --user-dir mine": (
        "fairseq-deep gives fairseq its own user directory and cannot take 'mine' as well: "
        "write `import fairseq_plugins` in mine/__init__.py "
    ),
    # fairseq would train with its own defaults.
    "hydra-train --config-name small": "--config-name small needs --config-dir, the directory of its file",
    "hydra-train --config-dir absent --config-name small": "--config-dir absent: no such directory",
    f"{YAML} --config-name smal": "unknown --config-name 'smal' (did you mean 'small'?); legal values: a/b, latin, ",
    f"{YAML} --config-name=smal.yaml": "unknown --config-name 'smal.yaml' (did you mean 'small'?); legal",
    f"{YAML} --config-name model": "--config-name model: this is the name of a group of fairseq's settings",
    f"{YAML} --confg-name small": "unknown option '--confg-name' (did you mean '--config-name'?); legal: ",
    f"{YAML} --config-name latin": "yaml/latin.yaml: line 1: not UTF-8 (byte 0xe9)",
    f"{YAML} --config-name none": "yaml/none.yaml: empty",
    "average --last-epoch 2": "unknown option '--last-epoch' (did you mean '--last-epochs'?); legal: ",
    "average --last-updates 1 --last-epochs 2": "argument --last-epochs: not allowed with argument --last-updates",
    "average --inputs a.pt --checkpoints . --output b.pt": (
        "--last-updates and --last-epochs need --checkpoints DIR, and --inputs is given without it"
    ),
    "fold a.pt b.pt --froce": "unknown option '--froce' (did you mean '--force'?); legal: ",
    "fold hyp ref": "ref exists; --force overwrites it",
    "fold hyp hyp --force": f"hyp: {INPUT}",
    "fsck absent": "absent: no such file or directory",
    "fsck yaml": "yaml: contains no checkpoint",
    "demo --methods adnim": "unknown method 'adnim' (did you mean 'admin'?); legal values: ",
    "demo --methods ,": "--methods is empty",
    "demo --max-update 3": "unknown option '--max-update'; legal: --help, --out, --methods, --seed",
    "demo max_update": "unexpected: 'max_update' is not KEY=VALUE",
    # Before days of training.
    f"{COMPARE} --average=last-epoch=10": AVERAGE,
    f"{COMPARE} common.seed=5": "common.seed would be the same in each training; use --seeds (see fairseq-deep ",
    f"compare data out {BOTH} --dry-run": f"two CONFIG have one file name, and so one directory in out: {BOTH}",
    "compare untested out multi30k_de_en/admin_3e3d": "untested: prepared without a test set; ",
    # Hydra would read a neighbour of such a file.
    "compare data out yaml/a.yml --dry-run": "yaml/a.yml: the name of a configuration must end in .yaml",
    "compare data out yaml/a.yaml.old --dry-run": "yaml/a.yaml.old: the name of a configuration must end in .yaml",
    f"{TABLE} --metrics blue": "unknown metric 'blue'; legal values: ",
    f"{TABLE} admin_6e6": "unknown row 'admin_6e6' (did you mean 'admin_6e6d'?)",
    f"{TABLE} iwslt14_de_en --seeds 1 x": "--seeds x: not a whole number of at least 0 ",
    f"{TABLE} iwslt14_de_en --nodes 2": "--nodes 2 needs a Slurm job: sbatch --nodes 2 [OPTION ...] scripts/slurm.sh ",
    "run multi30k_de_en/admin_3e3d data out --precision fp61": "unknown --precision 'fp61' (did you mean 'fp16'?)",
    "run multi30k_de_en/admin_3d3e yaml out": "multi30k_de_en/admin_3d3e: no such file (did you mean 'multi30k",
    f"run {RECIPE} untested untested": f"untested: {PREPARED}",
    f"run {RECIPE} untested untested/data-bin": f"untested/data-bin: {PREPARED}",
    "evaluate untested untested": f"untested: {PREPARED}",
    "evaluate untested/data-bin untested": f"untested/data-bin: {PREPARED}",
    f"compare untested untested {RECIPE}": f"untested: {PREPARED}",
    f"compare untested untested/data-bin {RECIPE}": f"untested/data-bin: {PREPARED}",
    "run yaml/model.yaml yaml out": "yaml/model.yaml: this is the name of a group of fairseq's settings, or of ",
    "run yaml/latin.yaml yaml out": "yaml/latin.yaml: not UTF-8 (byte 0xe9)",
    "evaluate run . --metrics=,": "unknown metric ''; legal values: chrf, chrf++, ",
    "evaluate run . --metrics=sacrebleu,blue": "unknown metric 'blue'; legal values: chrf, chrf++, ",
    "evaluate run . --average=last-epoch=10": AVERAGE,
    "evaluate run . --length-penalty=nan": "--length-penalty nan: not a finite number",
    "prepare -data": "the following arguments are required: DIR (",
    "translate -package": "the following arguments are required: MODEL (",
    "run -c d r": "the following arguments are required: RUN (",
    "score hyp ref --output hyp": f"hyp: {INPUT}",
    "score hyp ref --output ref": f"ref: {INPUT}",
    f"{SYSTEMS} a=hyp b=blank --output blank": f"blank: {INPUT}",
    "translate absent": "absent: no such directory; fairseq-deep package makes a ",
    "wmt --to out --pair de-fr un": "--pair de-fr: must be two languages, one of them en, for example en-de",
    "wmt --to out --pair en-de un": "un: not available for en-de; available with en: fr",
    "wmt --to out --pair en-de europarl-7": "unknown text of WMT 'europarl-7' (did you mean 'europarl-v7'?); legal",
    "report run --baseline pre_ln": "unknown --baseline 'pre_ln' (did you mean 'pre_ln_6e6d'?)",
    "report run --output ref": "ref: cannot be created: File exists",
    "report ref": "ref: no such directory",
    "report yaml": "yaml: not a run, and no run below it (no run.json or train.log)",
    "export package --to transformers": "--to transformers needs DIR",
    "export package out --to transformers --quantization int8": "--to transformers takes no --quantization",
    "export package out --to ctranslate2": "--to ctranslate2 takes no DIR",
    "prepare ''": "'' cannot be the output directory: it is empty, or has a comma",
    "prepare out --test text --valid x --train x": "'text' is not of the form NAME=PREFIX",
    "prepare out --valid x": "no --train PREFIX given",
    "prepare out --train x": "no --valid PREFIX given (or --valid every-23rd: that part of the training pairs)",
    "prepare out --train out/text/train --valid x": "out/text/train.de: the results are written there; use another d",
    f"{PREPARE} --valid y": "valid is given twice; only --train can be repeated",
    f"{PREPARE} --test a:b=x": "'a:b' cannot be the name of a set; legal: letters, digits, '-', '_' and '.'",
    f"{PREPARE} --raw test=x": "--raw or --changed test= is given, but no set test",
    f"{PREPARE} --given-subwords bpe": "--given-subwords bpe needs --tokeniser none --subwords none",
    f"{PREPARE} --given-tokeniser moses": "--given-tokeniser moses needs --tokeniser none",
    f"{PREPARE} --test test=third": "third.de: no such file",
    f"{PREPARE} --target de": "--source and --target are both 'de'; name two languages",
    f"{PREPARE} --subwords bep": "unknown --subwords 'bep' (did you mean 'bpe'?); legal values: bpe, none, sentencepi",
    f"{PREPARE} --size 10k": "--size 10k: not a whole number of at least 1 (see fairseq-deep prepare --help)",
    f"{PREPARE} --target-dict d": "--target-dict needs --no-joined; give a joined dictionary as --source-dict",
    f"{PREPARE} --joint-codes 0 --codes none": "none.de: no such file",
    f"{PREPARE} --subwords none --codes c": "--codes is set, but --subwords is none",
    f"{PREPARE} --clean none --max-length 80": "--min-length, --max-length or --ratio is set, but --clean is none",
    f"{PREPARE} --tokeniser none --aggressive": "--aggressive needs --tokeniser moses",
    f"{PREPARE} --ratio 0.5": "--ratio 0.5 would drop every pair; it must be at least 1",
    f"{PREPARE} --types 9 --source-dict d": "--types limits a new dictionary, but one is given",
    f"{PREPARE} --subwords none --vocabulary-threshold 5": "--vocabulary-threshold needs --subwords bpe",
    "score": WHICH,
    "score hyp": WHICH,
    "score hyp ref --systems a=hyp": WHICH,
    "score --systems a=hyp": WHICH,
    f"{SYSTEMS} a=": "--systems a=: must be NAME=HYP or NAME=HYP1,HYP2,...",
    f"{SYSTEMS} hyp": "--systems hyp: must be NAME=HYP or NAME=HYP1,HYP2,...",
    f"{SYSTEMS} a=hyp,short": f"a, run 2 has 24 lines, {UNEQUAL}",
    f"{SYSTEMS} a=hyp b=hyp --baseline c": "unknown --baseline 'c'; legal values: a, b",
    "score absent ref": "absent: no such file",
    "score yaml/none.yaml ref": "yaml/none.yaml: empty",
    "score yaml/latin.yaml ref": "yaml/latin.yaml: line 1: not UTF-8 (byte 0xe9)",
    "score hyp blank": "a reference contains only empty sentences",
    "score hyp short": "hyp has 30 lines, the references 24: sentence k must be the translation of sentence k",
    "score short ref": f"short has 24 lines, {UNEQUAL}",
    "score hyp ref short": f"reference 2 has 24 lines, {UNEQUAL}",
    "score hyp ref --metrics bleu": "unknown metric 'bleu' (did you mean 'sacrebleu'?); legal values: chrf, ",
    "score hyp ref --metrics=": "unknown metric ''; legal values: chrf, ",
    "score hyp ref --metrics tokenised": "tokenised BLEU: it needs --language-pair (such as de-en)",
    "score hyp ref --language-pair ende": "--language-pair must be SOURCE-TARGET, such as en-de, not 'ende'",
    "score hyp ref --language-pair de-xx --metrics tokenised": "tokenised BLEU: unknown language of Moses 'xx'; legal ",
    "score hyp ref --baseline hpy": "unknown --baseline 'hpy' (did you mean 'hyp'?); legal values: hyp",
    "score hyp ref --metricks ter": "unknown option '--metricks' (did you mean '--metrics'?); ",
    "score hyp ref --metrics chrf --output absent/x": "absent/x: cannot be written: no such file or directory",
    "diagnose": "no analysis given: name one of gradient-norm, gradient-ratios, dependency",
    "diagnose gradient-nrom": "unknown analysis 'gradient-nrom' (did you mean 'gradient-norm'?)",
    "diagnose gradient-norm admni": "unknown method 'admni' (did you mean 'admin'?)",
    "diagnose gradient-norm transformer": "'transformer' is not an architecture of this package; name a method",
    "diagnose scales admin_transformer_lm --encoder-layers 3": "admin_transformer_lm has no setting --encoder-layers",
    "diagnose scales admin --encoder-layer 3": "unknown option '--encoder-layer' (did you mean '--encoder-layers'?",
    "diagnose scales admin --norm-position per": "unknown value of --norm-position 'per' (did you mean 'peri'?)",
    "diagnose scales --sentences 0": "--sentences 0: not a whole number of at least 1",
    "diagnose output-change admin --step sgd": "unknown step 'sgd'",
    "diagnose scales admin --output ref/below": "--output ref/below: cannot be written: Not a directory",
    "diagnose jacobian admin --length 25": "jacobian: 25 words of width 512 make a matrix of 12800 rows, ",
    "diagnose all --paper admni": "unknown paper 'admni' (did you mean 'admin'?)",
    "diagnose dependency --paper admin": "--paper needs 'all', not 'dependency'",
    "diagnose all admin --paper admin": "--paper defines what is measured: drop --methods",
    "diagnose all --paper admin --dropout 0 --length 9 --seed 2": "--paper defines what is measured: drop --length, ",
    "diagnose timeline": "no training given: name a recorder.jsonl, or a directory with one",
    "diagnose timeline recordr.jsonl": "{here}/recordr.jsonl: No such file",
    "diagnose timeline yaml/none.yaml": "{here}/yaml/none.yaml: contains no whole entry of a recorder",
    "diagnose timeline yaml/latin.yaml": "{here}/yaml/latin.yaml: contains no whole entry of a recorder",
    "diagnose timeline yaml": "yaml: no recorder.jsonl in it or below it",
    "diagnose timeline recorded": "{here}/recorded/recorder.jsonl: a second recorder.jsonl of {here}/recorded; ",
    "diagnose timeline recorded/recorder.jsonl --checkpoint a.pt": "timeline reads the files of a recorder: no --che",
    "diagnose timeline recorded/recorder.jsonl --dropout 0": "--dropout: a trained model has its own settings",
    "text": "unknown step ''; legal values: bytes, ",
    "text tokenize": "unknown step 'tokenize' (did you mean 'tokenise'?); legal values: bytes, ",
    "text tokenise x y": "the following arguments are required: --language (",
    "text split --every 0 x y z": "--every 0: not a whole number of at least 1",
    "text ted --kind xlm x y": "unknown --kind 'xlm' (did you mean 'xml'?); legal values: tags, xml",
    "text straighten ref ./ref": f"ref: {INPUT}",
    "text split --every 1 hyp x y": "hyp: 30 lines cannot be split at every 1th: one part would be empty",
    "text split --every 31 hyp x y": "hyp: 30 lines cannot be split at every 31th: one part would be empty",
    "text select-every --every 31 hyp x": "hyp: fewer than 31 lines",
    "text describe --tokeniser none --subwords none ''": ".: a directory; give the name of a file",
    "text select --lines numbers hyp x": "hyp: has no line 31, which is in numbers",
    "text select --lines ref hyp x": "hyp: has no line The cat 0 sat.",
    "text columns hyp x y": "hyp: line 1 has 1 columns, not 2",
    "text cut-bytes yaml/small.yaml x": "yaml/small.yaml: 10 bytes, too few to cut into three parts",
    "text cut-bytes parts/train parts": f"parts/train: {INPUT}",
    "text bytes yaml/none.yaml x": "yaml/none.yaml: empty",
    "text columns pairs de ./de": "de de: two outputs are the same file; choose another name",
    "text columns pairs de pairs": f"pairs: {INPUT}",
    "text truecase --model ref x ref": f"ref: {INPUT}",
}
"""The beginning of a command's line, by its words, in a directory ``{here}``; ``text`` are the steps on text."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of 30 and 24 lines and of none, YAML files, a run, and files of a recorder."""
    place = tmp_path_factory.mktemp("refusals")
    sentences = [f"The cat {number} sat." for number in range(30)]
    for name, lines in {"hyp": sentences, "ref": sentences, "short": sentences[:24], "blank": [""] * 30}.items():
        write(place / name, lines)
    for language in ("de", "en"):
        write(place / f"one.{language}", sentences)
    for name in ("small.yaml", "a/b.yaml", "model.yaml", "notes.txt", "a.yml", "a.yaml.old"):
        write(place / "yaml" / name, ["model: {}"])
    (place / "yaml" / "latin.yaml").write_bytes(b"a: \xe9\n")
    (place / "yaml" / "none.yaml").touch()
    write(place / "untested" / "test_sets", [])
    write(place / "parts" / "train", sentences)
    write(place / "numbers", ["2", "31"])
    write(place / "copy" / "core" / "designed.py", [])
    (place / "json").mkdir()
    (place / "untested" / "data-bin").mkdir()
    write_run(place / "run", config="x/pre_ln_6e6d")
    for name in ("recorder.jsonl", "checkpoints/recorder.jsonl"):
        write(place / "recorded" / name, [Entry(1, True, {"loss": 1.0}).to_json()])
    return place


def test_each_is_one_line_and_nothing_is_made(place, monkeypatch, capfd):
    monkeypatch.chdir(place)
    before, wrong = times(place), {}
    for words, line in REFUSED.items():
        given = shlex.split(words)
        code = text(given[1:]) if given[:1] == ["text"] else main(given)
        out, err = capfd.readouterr()
        said = [one for one in err.splitlines() if not one.startswith("measuring ")]
        begin = f"error: {line.replace('{here}', str(place))}"
        if (code, out, [one[: len(begin)] for one in said]) != (2, "", [begin]):
            wrong[words] = (code, out, said)
    assert wrong == {}
    assert times(place) == before
