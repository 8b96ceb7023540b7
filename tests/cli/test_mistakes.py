"""A user's mistake is one line and exit code 2, in ``fairseq-deep`` and in stock's commands with ``--user-dir``."""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from fairseq_plugins.errors import EXIT_CODE, UserError
from fairseq_plugins.patches.messages import DECAY, NO_FAIRSCALE, OLD_SCORER, run_or_explain
from fairseq_plugins.tools.cli.main import main
from fairseq_plugins.tools.cli.stock import USER_DIR
from tests import processes, toy

MODEL = "run/checkpoint_last.pt"
TRAINING = " ".join([*toy.TINY_MODEL, *toy.RECIPE, "--arch post_ln_transformer --max-update 1 --save-dir saved"])
LENGTHS = [len(source.split()) + 1 for source, _ in toy.sentence_pairs(toy.SIZES["test"], 3)]
LONGEST = LENGTHS.index(max(LENGTHS)) + 1
UNCHECKED = f"{TRAINING} --disable-validation"
GENERATION = f"--cpu --beam 1 --max-len-b 3 --path {MODEL}"
VALIDATION = f"--cpu --max-tokens 400 --path {MODEL}"

NOT_THERE = "No such file or directory: nowhere"
RAW = "text: holds raw text (train.de, train.en), not binarised data: binarise it with `fairseq-deep preprocess` or "
NO_DATA = "run: holds no binarised data with the languages in its file names; give -s and -t, or another DIR"
NO_SPLIT = "data-bin: holds no set 'tst' (did you mean 'test'?); it holds: test, train, valid"
NO_BATCH = "Must specify batch size either with --max-tokens or --batch-size"
NO_PATH = "--path is required: the checkpoint of the model, or several with colons between them"
NO_ROOM = "--max-tokens {} is smaller than the longest sentence, which has 10 tokens: use at least --max-tokens 10; a "
NO_CTC = "--criterion label_smoothed_cross_entropy_with_ctc_with_diagnostics does not fit --task translation and "
NO_POSITIONS = (
    "tokens with the end mark, at most {} are possible with this model and its --max-source-positions and "
    # Some commands have no such line: an evaluation translates all sentences.
    "--max-target-positions; shorten it; fairseq's commands skip it with --skip-invalid-size-inputs-valid-test"
)

MISTAKES: Mapping[str, Mapping[str, str]] = {
    "train": {
        "data --arch post_ln_transformer --encoder-layrs 3": "unknown option '--encoder-layrs' (did you mean '--enco",
        "data --arhc post_ln_transformer": "unknown option '--arhc' (did you mean '--arch'?)",
        "data --arch post_ln_transformer more": "unexpected: 'more' (",
        "--arch post_ln_transformer": "the following arguments are required: data (",
        "data": "--arch is missing; legal: METHOD_transformer or ",
        "data --arch admin_transfromer": "unknown --arch 'admin_transfromer' (did you mean 'admin_transformer'?); ",
        "data --arch dsinit_matt_transformer_lm": "--attention matt is part of the cross-attention, which language",
        "data --arch t_fixup_transformer_lm_gpt": "--init t_fixup has no published rule for a language model",
        "data --arch transformer --optimizer admm": "unknown --optimizer 'admm' (did you mean 'adam'?); legal values: ",
        "data --arch transformer --lr": "argument --lr: expected one argument (",
        "data --arch transformer --lr abc": "--lr abc: not a number, or several with commas between them",
        "data --arch transformer --max-tokens 4k": "--max-tokens 4k: not a whole number",
        "data --arch transformer --dropout 0,1": "--dropout 0,1: not a number",
        "data --arch transformer --fp16 --bf16": "--fp16 and --bf16 exclude each other: leave out one (",
        "data --arch transformer --save-interval 0": "--save-interval must be at least 1, not 0",
        f"nowhere {UNCHECKED}": NOT_THERE,
        f"text {UNCHECKED}": RAW,
        f"run {UNCHECKED}": NO_DATA,
        f"data-bin {UNCHECKED} --train-subset tst": NO_SPLIT,
        f"data-bin {TRAINING} --valid-subset tst": NO_SPLIT,
        f"data-bin {UNCHECKED} -s fr -t en": "No such file or directory: data-bin/dict.fr.txt",
        f"data-bin {UNCHECKED.replace('--max-tokens 120', '')}": NO_BATCH,
        f"data-bin {UNCHECKED} --max-tokens 7": NO_ROOM.format(7),
        f"data-bin {TRAINING} --max-tokens-valid 5": NO_ROOM.format(5),
        f"data-bin {UNCHECKED} --max-source-positions 1": "no training sentence is within --max-source-positions and ",
        f"data-bin {UNCHECKED} --lr-scheduler polynomial_decay --total-num-update 0": DECAY,
        f"data-bin {TRAINING} --optimizer foreach_adam --fp16-adam-stats": "--fp16-adam-stats is only supported with ",
        f"data-bin {UNCHECKED} --encoder-embed-path vectors": "vectors: its vectors have 8 numbers, and the ",
        f"data-bin {UNCHECKED} --optimizer muon --memory-efficient-bf16": "--optimizer muon does not support --memory",
        f"data-bin {UNCHECKED} --criterion label_smoothed_cross_entropy_with_ctc_with_diagnostics": NO_CTC,
        f"data-bin {UNCHECKED} --criterion nat_loss": "--criterion nat_loss does not fit --task translation ",
        **({} if find_spec("fairscale") else {f"data-bin {UNCHECKED} --zero-sharding os": NO_FAIRSCALE}),
        **({} if torch.cuda.is_available() else {f"data-bin {UNCHECKED} --fp16": "--fp16 needs a GPU; on a CPU "}),
    },
    "preprocess": {"--trainprf x": "unknown option '--trainprf' (did you mean '--trainpref'"},
    "generate": {
        "data --beem 5": "unknown option '--beem' (did you mean '--beam'?)",
        "data --beam 0": "--beam must be at least 1, not 0",
        "data --lenpen nan": "--lenpen must be a finite number, not nan",
        "data --sacrebleu": "--sacrebleu: fairseq does not read it; sacreBLEU is --scoring sacrebleu",
        "data --beam 2 --nbest 3": "--nbest 3 is more than --beam 2, which is all that a search finds",
        "data --temperature 0": "--temperature must be above 0, not 0.0",
        f"nowhere {GENERATION}": NOT_THERE,
        f"text {GENERATION}": RAW,
        f"data-bin {GENERATION} --gen-subset tst": NO_SPLIT,
        "data-bin --cpu": "--path required for generation!",
        f"data-bin {GENERATION} --path absent.pt": "no such checkpoint: absent.pt",
        f"data-bin {GENERATION} --tokenizer moses": "--tokenizer needs the languages: give --source-lang and --target",
        f"data-bin {GENERATION} --max-tokens 6": NO_ROOM.format(6),
        f"data-bin {GENERATION} --replace-unk": "--replace-unk must be unset, since fairseq copies wrong words: use ",
        f"data-bin {GENERATION} --model-overrides {{'dropout'": "--model-overrides takes a dictionary such as ",
        f"data-bin {GENERATION} --model-overrides dropout=1": "--model-overrides takes a dictionary such as ",
        f"data-bin {GENERATION} --model-overrides dropout": "--model-overrides takes a dictionary such as ",
        f"data-bin {GENERATION} --min-len 4": "--min-len is more than --max-len-a, --max-len-b and ",
        f"data-bin {GENERATION} --min-len 4 --search fairseq": "--min-len is more than --max-len-a, --max-len-b and ",
        f"data-bin {GENERATION} --sampling-topk 3": "--sampling-topk requires --sampling",
        f"data-bin {GENERATION} --sampling --diverse-beam-groups 1": "--sampling, --diverse-beam-groups, --match-sou",
        f"data-bin {GENERATION} --beam 3 --diverse-beam-groups 2": "DiverseBeamSearch requires --beam to be divis",
        f"data-bin {GENERATION} --remove-bpe sentencpiece": "unknown value of --post-process, --remove-bpe or --ev",
        f"data-bin {GENERATION} --bpe subword_nmt": "--bpe-codes is required with this --bpe",
        f"data-bin {GENERATION} --max-source-positions 9": (
            f"sentence {LONGEST} has 10 and 10 {NO_POSITIONS.format('9 and 1024')}"
        ),
    },
    "interactive": {
        f"nowhere {GENERATION} --input lines": NOT_THERE,
        f"data-bin {GENERATION} --input nolines": "No such file or directory: nolines",
        "data-bin --cpu --input lines": NO_PATH,
        "data-bin --num-shards 2 --prefix-size 1": "--num-shards, --prefix-size: fairseq-interactive does not read it",
        f"data-bin {GENERATION} --input lines --max-source-positions 3": (
            f"sentence 2 has 4 {NO_POSITIONS.format('3 and 1024')}"
        ),
    },
    "validate": {
        f"nowhere {VALIDATION} --task translation": NOT_THERE,
        f"data-bin {VALIDATION} --valid-subset tst": NO_SPLIT,
        "data-bin --cpu --max-tokens 400": NO_PATH,
        f"data-bin --cpu --path {MODEL}": NO_BATCH,
    },
    "eval-lm": {
        "data --context-widow 5": "unknown option '--context-widow' (did you mean '--context-window'?)",
        f"nowhere {VALIDATION}": "No such file or directory: nowhere/dict.txt",
        "words --cpu": NO_PATH,
    },
    "score": {"--sys lines --ref words/dict.txt": "lines: not parallel: lines has 2 lines, words/dict.txt has 1 lines"}
    | {f"--sys lines --ref lines {flag}": OLD_SCORER for flag in ("--sacrebleu", "--sentence-bleu")},
}
"""The input of each command and the beginning of its line."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prepared directory: raw text and ``data-bin``; a model, a line of text, a dictionary of a language model."""
    directory = tmp_path_factory.mktemp("mistakes")
    data = toy.binarise(directory)
    toy.train_toy(data, directory / "run", "--max-update", "1", arch="post_ln_transformer")
    (directory / "lines").write_text("eins\neins zwei drei\n", encoding="utf-8")
    (directory / "vectors").write_text("1 8\neins 1 2 3 4 5 6 7 8\n", encoding="utf-8")
    (directory / "words").mkdir()
    (directory / "words" / "dict.txt").write_text("eins 1\n", encoding="utf-8")
    return directory


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    toy.forget_earlier_trainings()


def deep(command: str, words: Sequence[str]) -> int:
    """``fairseq-deep COMMAND``, where ``score`` is another one than fairseq's."""
    return main(["stock-score" if command == "score" else command, *words])


def stock(command: str, words: Sequence[str]) -> int:
    """The command of fairseq itself, as the interpreter ends it."""
    with pytest.MonkeyPatch.context() as patched:
        user_dir = [] if command == "score" else ["--user-dir", USER_DIR]
        patched.setattr(sys, "argv", [f"fairseq-{command}", *words, *user_dir])
        try:
            import_module(f"fairseq_cli.{command.replace('-', '_')}").cli_main()
        except Exception as error:
            with pytest.raises(SystemExit) as ended:
                sys.excepthook(type(error), error, error.__traceback__)
            return int(str(ended.value.code))
    return 0


@pytest.mark.parametrize("run", [deep, pytest.param(stock, marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", MISTAKES)
def test_each_is_one_line(command, run, capfd):
    ended = {}
    for words, line in MISTAKES[command].items():
        capfd.readouterr()
        code = run(command, words.split())
        lines = [said for said in capfd.readouterr().err.splitlines() if said.startswith(("error: ", "Traceback"))]
        if code != EXIT_CODE or len(lines) != 1 or not lines[0].startswith(f"error: {line}"):
            ended[words] = (code, lines)
    assert ended == {}


@pytest.mark.slow
def test_hydra_does_not_warn_before_the_line() -> None:
    """It would do so five times, about calls of fairseq."""
    words = f"nowhere --arch admin_transformer --max-tokens 9 --user-dir {USER_DIR}".split()
    ended = processes.python("-m", "fairseq_cli.train", *words)
    assert (ended.code, ended.errors) == (EXIT_CODE, f"error: {NOT_THERE}\n")


def test_weights_outside_the_loss_on_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LayerDrop leaves them so; the text is torch's own."""
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # torch puts its own in its place
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    layers = torch.nn.ModuleDict({"used": torch.nn.Linear(1, 1), "dropped": torch.nn.Linear(1, 1)})
    layers.forward = lambda x: layers["used"](x)  # type: ignore[assignment]
    parallel = torch.nn.parallel.DistributedDataParallel(layers)

    def two_updates() -> None:
        for _ in range(2):
            parallel(torch.ones(1, 1)).sum().backward()

    try:
        with pytest.raises(UserError, match="^several processes need --find-unused-parameters where an update leaves"):
            run_or_explain(two_updates)
    finally:
        torch.distributed.destroy_process_group()


def test_a_prepared_directory_is_taken_for_the_data_in_it(tmp_path: Path) -> None:
    taken = {
        "train": UNCHECKED.replace("--save-dir saved", f"--save-dir {tmp_path}"),
        "generate": GENERATION,
        "interactive": f"{GENERATION} --input lines",
        "validate": VALIDATION,
    }
    ended = {command: deep(command, [".", *words.split()]) for command, words in taken.items()}
    assert ended == dict.fromkeys(taken, 0)


def test_an_error_elsewhere_keeps_its_trace() -> None:
    """Other programs import this package, too, and a missing file of theirs is theirs."""
    code = "import sys, fairseq_plugins; sys.__excepthook__ = sys.excepthook; open('absent')"
    ended = processes.python("-W", "ignore", "-c", code, PYTHONPATH=str(Path(USER_DIR).parent))
    line = "FileNotFoundError: [Errno 2] No such file or directory: 'absent'"
    assert (ended.code, ended.errors.splitlines()[-1]) == (1, line)


def test_ctrl_c_in_a_command_of_fairseq_leaves_no_trace(monkeypatch, capfd):
    interrupt = KeyboardInterrupt()
    monkeypatch.setattr("fairseq_cli.score.dictionary.Dictionary", lambda: (_ for _ in ()).throw(interrupt))
    with pytest.raises(KeyboardInterrupt):
        stock("score", ["--sys", "lines", "--ref", "lines"])
    with pytest.raises(SystemExit, match="^130$"):
        sys.excepthook(KeyboardInterrupt, interrupt, interrupt.__traceback__)
    assert capfd.readouterr().err == ""


def test_a_rank_passes_on_the_line() -> None:
    def missing() -> None:
        raise FileNotFoundError(2, "No such file or directory", "data-bin/dict.de.txt")

    with pytest.raises(UserError, match="^No such file or directory: data-bin/dict.de.txt$"):
        run_or_explain(missing)
    with pytest.raises(KeyError):
        run_or_explain(lambda: {}["ours"])
