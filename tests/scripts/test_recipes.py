"""Every script of a corpus prepares what the papers have: its options, by a dry run; and its mistakes are one line."""

import re
import subprocess
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from fairseq_plugins.tools.pipeline.prepare import _by_name, _parser
from fairseq_plugins.tools.pipeline.prepare_settings import PrepareSettings
from tests.config.published import CONFIGS
from tests.scripts.running import ROOT, completed, dry_run, environment, refusal, run

CORPORA = sorted(path.name for path in (ROOT / "scripts").glob("prepare_*.sh"))


def complete(read: dict[str, Any]) -> dict[str, Any]:
    """The settings of a preparation, by name, with their defaults."""
    return asdict(PrepareSettings(**{one.name: read[one.name] for one in fields(PrepareSettings) if one.name in read}))


def prepared(script: str, *words: str, **settings: str) -> tuple[dict[str, Any], list[str]]:
    """Options of the preparation that a script would call, and the texts of WMT that it would download."""
    commands = dry_run(script, "/no/where", *words, **{"SIZE": "", "ARCHIVE_DIR": "", **settings})
    [*_, last] = [command[2:] for command in commands if command[1] == "prepare"]
    wmt = [command[2:] for command in commands if command[1] == "wmt"]
    return vars(_parser().read(_by_name(last))), wmt[0] if wmt else []


EN_DE = "--source en --target de"
MOSES = "--aggressive --normalise train --clean subwords"
BY_SIDE = "--no-joint-codes --no-joined --vocabulary-threshold 50"
ORGANISERS = "--tokeniser none --given-tokeniser moses --given-truecased --clean none"
GOOGLE = "--tokeniser none --given-tokeniser moses --subwords none --given-subwords bpe --clean none"
# Corpus, variant, options that are not prepare's defaults, validation set, one of the texts of WMT.
PUBLISHED = (
    ("iwslt14_de_en", "fairseq", "--size 10000 --lower-case --max-length 175", "every-23rd", ""),
    ("iwslt14_de_en", "dsinit", "--size 30000 --lower-case --max-length 175 --no-joined", "split/valid", ""),
    ("wmt14_en_de", "wmt14", f"{EN_DE} {MOSES}", "normalised/newstest2013", "commentary-v9"),
    (
        "wmt14_en_de",
        "",
        f"{EN_DE} --aggressive --normalise train --max-length 80 --ratio 9 --size 32764",
        "normalised/newstest2013",
        "commentary-v12",
    ),
    ("wmt14_en_de", "wmt17", f"{EN_DE} {MOSES} --size 40000", "every-100th", "commentary-v12"),
    ("wmt14_en_de", "dsinit", f"{EN_DE} {BY_SIDE} --aggressive --ratio 250", "newstest2013", "newstest2014-filtered"),
    # google/seq2seq, bin/data/wmt16_en_de.sh: tokenizer.perl without -a, clean-corpus-n 1 80, 32,000 joint merges.
    ("wmt14_en_de", "wmt16-raw", f"{EN_DE} --max-length 80 --ratio 9 --types 32768", "newstest2013", "commentary-v11"),
    ("wmt14_en_de", "wmt16-google", f"{EN_DE} {GOOGLE} --types 32768", "newstest2013.tok.bpe.32000", ""),
    ("wmt14_en_fr", "fairseq", f"--source en --target fr {MOSES} --size 40000", "every-1333rd", "giga-fren"),
    ("wmt14_en_fr", "dsinit", f"--source en --target fr {MOSES} {BY_SIDE}", "newstest2012+newstest2013", "un"),
    ("wmt18_en_fi", "", f"--source en --target fi {ORGANISERS} {BY_SIDE}", "tokens/newstest2017", "newstest2018"),
    ("wmt18_zh_en", "", f"--source zh --target en {ORGANISERS} {BY_SIDE}", "tokens/newstest2017", "newstest2018"),
    ("multi30k", "", "--size 4000", "val", ""),
    ("tatoeba", "", "--size 4000", "where.sets/valid", ""),
)


def test_each_corpus_is_prepared_as_its_authors_do() -> None:
    wrong = []
    for corpus, variant, words, valid, text in PUBLISHED:
        asked, wmt = prepared(f"prepare_{corpus}.sh", **({"VARIANT": variant} if variant else {}))
        settings, expected = complete(asked), complete(vars(_parser().read(["DIR", "--workers", "1", *words.split()])))
        odd = [name for name in expected if settings[name] != expected[name]]
        wrong += [f"{corpus} {variant}: {name} {settings[name]}" for name in odd]
        wrong += [] if asked["valid"][0].endswith(valid) else [f"{corpus} {variant}: {asked['valid']}"]
        wrong += [] if any(name.endswith(text) for name in ["", *wmt]) else [f"{corpus} {variant}: {wmt}"]
        straight = any("/straight/" in test for test in asked["test"])
        assert straight == (corpus.startswith("wmt14") and variant in ("", "wmt14", "wmt17", "fairseq"))
    assert wrong == []


def test_a_setting_is_an_option_or_a_variable_of_the_environment() -> None:
    words, script = ("--size", "77", "--joined=1", "--source", "en", "--target", "de"), "prepare_iwslt14_de_en.sh"
    option = dry_run(script, "/no/where", *words)
    assert option == dry_run(script, "/no/where", SIZE="77", JOINED="1", SOURCE="en", TARGET="de")
    asked, _ = prepared(script, *words)
    assert [asked[name] for name in ("size", "joined", "source", "target")] == [77, True, "en", "de"]


def test_multi30k_takes_every_option_of_prepare_from_the_environment() -> None:
    values = {"subwords": "none", "clean": "none", "tokeniser": "none", "normalise": "all", "ratio": "3"}
    values |= {"given_tokeniser": "moses", "given_subwords": "bpe", "source": "en", "target": "de"}
    options = {setting.name: values.get(setting.name, "1") for setting in fields(PrepareSettings)}
    asked, _ = prepared("prepare_multi30k.sh", **{name.upper(): value for name, value in options.items()})
    types = {name: type(asked[name]) for name in options}
    assert {name: types[name](value) for name, value in options.items()} == {name: asked[name] for name in options}


def documented(script: str) -> set[str]:
    """The names that the head of a script lists as settings."""
    head = (ROOT / "scripts" / script).read_text(encoding="utf-8").split("\nsource ")[0]
    return set(re.findall(r"\b([A-Z][A-Z_]+)\b", re.split(r"[.;]\s", head.partition("# Settings:")[2])[0]))


def test_every_setting_that_a_script_reads_is_in_its_head_and_in_a_table_of_the_documentation() -> None:
    pages = [(ROOT / "docs" / name).read_text(encoding="utf-8").splitlines() for name in ("data.md",)]
    cells = [line.split("|")[1] for page in pages for line in page if line.startswith("| `")]
    explained = {name for cell in cells for name in re.findall(r"`([A-Z_]+)`", cell)}
    explained |= {option[2:].upper().replace("-", "_") for option in _parser()._long_options()}
    for script in CORPORA:
        text = (ROOT / "scripts" / script).read_text(encoding="utf-8")
        for shared in re.findall(r"scripts/(lib_\w+\.sh)", text):
            text += (ROOT / "scripts" / shared).read_text(encoding="utf-8")
        assert set(re.findall(r"\$\{([A-Z][A-Z_]+):-", text)) - {"BASH_SOURCE"} <= documented(script), script
        assert documented(script) <= explained, script


MISTAKES: tuple[tuple[str, str, dict[str, str], str], ...] = (
    ("prepare_iwslt14_de_en.sh", "a b", {}, "one directory, not 2: a b"),
    ("prepare_iwslt14_de_en.sh", "a", {"SOURCE": "fr"}, "SOURCE-TARGET is fr-en; legal: de-en, en-de"),
    ("prepare_iwslt14_de_en.sh", "a", {"JOINED": "yes"}, "unknown JOINED 'yes'; legal values: 0 1"),
    ("prepare_iwslt14_de_en.sh", "a --ratio 7", {}, "unknown option '--ratio'; --help lists the settings"),
    ("prepare_enwik8.sh", "a --workers", {}, "--workers needs a value"),
    ("reproduce/multi30k.sh", "", {"UPDATES": "many"}, "UPDATES must be a whole number, not 'many'"),
    ("prepare_multi30k.sh", "a", {"DRY_RUN": "yes"}, "unknown DRY_RUN 'yes'; legal values: 0 1"),
    ("prepare_librispeech.sh", "a", {"SIZE": "10k"}, "SIZE must be a whole number of at least 1, not '10k'"),
    ("prepare_librispeech.sh", "a:b", {}, "fairseq does not support a colon or a space"),
    ("prepare_librispeech.sh", "a", {}, "cannot import pandas, sentencepiece, soundfile and torchaudio.sox_effects"),
    ("prepare_wmt14_en_de.sh", "a", {"VARIANT": "wmt15"}, "unknown VARIANT 'wmt15'; legal values: admin wmt14 wmt17"),
    ("prepare_wmt14_en_de.sh", "a", {"VALID": "newstest2012"}, "unknown VALID 'newstest2012'"),
    ("prepare_wmt14_en_de.sh", "a", {"APOSTROPHE": "curly"}, "unknown APOSTROPHE 'curly'; legal values: straight keep"),
    ("prepare_wmt14_en_de.sh", "a", {"VARIANT": "wmt16-google", "SIZE": "9"}, "comes in subwords, with VALID="),
    ("prepare_wmt14_en_de.sh", "a", {"TEST_SETS": "newtest2015"}, "'newtest2015' (did you mean 'newstest2015'?)"),
    ("prepare_wmt14_en_de.sh", "file/below", {}, "cannot"),
    ("train.sh", "a b c --precisionx", {}, "(did you mean '--precision'?)"),
    ("evaluate.sh", "a b c --length-penaltx", {}, "(did you mean '--length-penalty'?)"),
)


def test_a_mistake_is_one_line_before_any_text_is_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    wrong = []
    for script, words, settings, line in MISTAKES:
        places = [str(tmp_path / word) if word[0].isalpha() else word for word in words.split()]
        if line not in (said := refusal(script, *places, **settings).replace(f"{tmp_path}/", "")):
            wrong.append(f"{script} {words} {settings}: {said}")
    assert wrong == []
    # A misspelt test set is found by the first download, before which the call is noted.
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")} == {"file", "a", "a/calls"}


def test_a_directory_is_no_pattern(tmp_path: Path) -> None:
    raw, made = tmp_path / "[v2]" / "raw", tmp_path / "[v2]" / "made"
    raw.mkdir(parents=True)
    for ending in ("", ".gz"):
        (raw / f"test_2017_flickr.de{ending}").touch()
        [words] = dry_run("prepare_multi30k.sh", made, RAW=str(raw))
        assert f"test_2017={raw}/test_2017_flickr" in words
        (raw / f"test_2017_flickr.de{ending}").unlink()
    [words] = dry_run("prepare_multi30k.sh", made, RAW=str(raw))
    assert not [word for word in words if "2017" in word]


def test_without_flock_nothing_is_claimed_nor_said_to_be_in_use(tmp_path: Path) -> None:
    (tmp_path / "mkdir").symlink_to("/bin/mkdir")
    script = f'source "{ROOT}/scripts/lib.sh"; PATH={tmp_path} claim "{tmp_path}/made"'
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    line = f"error: flock, which keeps a second job out of {tmp_path}/made, is not installed\n"
    assert (ended.returncode, ended.stderr) == (2, line)


def test_help_is_the_head_of_the_script(tmp_path: Path) -> None:
    reproductions = sorted(f"reproduce/{path.name}" for path in (ROOT / "scripts" / "reproduce").glob("*.sh"))
    for script in (*CORPORA, "slurm.sh", *reproductions):
        shown = run(script, "--help")
        assert (shown.returncode, shown.stderr) == (0, ""), script
        assert f"scripts/{script}" in shown.stdout


def test_each_script_notes_the_line_of_the_configurations() -> None:
    files = [path.read_text() for path in CONFIGS.glob("*/*.yaml") if path.parent.name != "multi30k_de_en"]
    lines = {text.partition("# Data: ")[2].partition(";")[0] for text in files}
    noted = set()
    for line in (line for line in lines if "scripts/" in line):
        variant, _, script = line.rpartition("scripts/")
        settings = {"VARIANT": variant.strip().removeprefix("VARIANT=")} if variant else {}
        needed = ["made"] if script == "prepare_tatoeba.sh" else []
        for output in completed(script, *needed, DRY_RUN="1", **settings).splitlines():
            noted |= {output.partition("/prepared_by: ")[2]} if "/prepared_by: " in output else set()
    assert noted == {line for line in lines if "scripts/" in line}


def test_a_dry_run_evaluates_nothing() -> None:
    assert completed("evaluate.sh", "a", "b", DRY_RUN="1").endswith("-m fairseq_plugins.tools.cli evaluate a b \n")


def test_a_note_has_the_settings_that_change_the_text_and_every_call_that_made_it(tmp_path: Path) -> None:
    script = tmp_path / "prepare_x.sh"
    head = "# Settings: VARIANT, SIZE, WORKERS, CACHE, TEST_SETS, CHECKSUMS, DRY_RUN."
    script.write_text(
        f'{head}\nsource "$LIBRARY"\nread_settings "$@"\nVARIANT=${{VARIANT:-fairseq}} SIZE=${{SIZE:-9}}\n'
        'set_directory none "${words[@]}"\nnote_call\n[[ -z $STOP ]] || exit 0\nnote_prepared\n'
    )

    def noted(name: str, *words: str, stop: str = "", **settings: str) -> str:
        settings |= {"LIBRARY": str(ROOT / "scripts" / "lib.sh"), "STOP": stop, "TEST_SETS": "a", "CACHE": "b"}
        command = ["bash", str(script), str(tmp_path / name), *words]
        subprocess.run(command, env=environment(**settings), check=True)
        note = tmp_path / name / "prepared_by"
        return note.read_text() if note.exists() else ""

    plain, other = "scripts/prepare_x.sh\n", "scripts/prepare_x.sh CHECKSUMS=/dev/null\n"
    assert noted("a") == noted("a", CHECKSUMS="/dev/null") == noted("b", VARIANT="fairseq", WORKERS="3") == plain
    assert noted("c", "--size", "9", VARIANT="dsinit") == "VARIANT=dsinit scripts/prepare_x.sh SIZE=9\n"
    # Files that an earlier call downloaded may still be part of the text; a directory without a note is unknown.
    assert noted("d", stop="1", CHECKSUMS="/dev/null") == ""
    assert noted("d") == other + plain
    (tmp_path / "e" / "raw").mkdir(parents=True)
    assert noted("e") == ""
