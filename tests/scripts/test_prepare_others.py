"""enwik8, WikiText-103 and LibriSpeech from made archives to data-bin."""

import os
import sys
import zipfile
from pathlib import Path

import pytest

from tests.scripts.archives import write_archive, write_archives
from tests.scripts.fakes import program, without_binarising
from tests.scripts.running import completed, contents, refusal, run
from tests.texts import write

PARTS = ("train-clean-100", "train-clean-360", "train-other-500", "dev-clean", "dev-other", "test-clean", "test-other")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    directory = tmp_path / "a directory with spaces"
    directory.mkdir()
    return directory


def settings(here: Path, **more: str) -> dict[str, str]:
    return {"ARCHIVE_DIR": str(here / "archives"), "CHECKSUMS": "/dev/null", **more}


def test_wikitext103(here: Path) -> None:
    write_archives("wikitext103", here / "archives", 40)
    completed("prepare_wikitext103.sh", here / "made", **settings(here, PYTHON=without_binarising(here)))
    made = here / "made"
    published = zipfile.ZipFile(here / "archives/wikitext-103-v1.zip")
    for split in ("train", "valid", "test"):
        assert (made / "raw" / split).read_bytes() == published.read(f"wikitext-103/wiki.{split}.tokens")
    [asked] = (here / "asked").read_text().splitlines()
    for word in ("--only-source", f"--trainpref {made}/raw/train", f"--validpref {made}/raw/valid", "raw/test"):
        assert word in asked
    assert sorted(path.name for path in made.iterdir()) == [".lock", "data-bin", "prepared_by", "raw", "text.json"]


def test_asked_for_a_dry_run_nothing_is_made(tmp_path: Path) -> None:
    for script in ("prepare_enwik8.sh", "prepare_wikitext103.sh", "prepare_librispeech.sh"):
        printed = completed(script, tmp_path / "made", DRY_RUN="1", CACHE=str(tmp_path / "cache"))
        assert " -m fairseq_plugins.tools.cli download " in printed
        assert refusal(script, tmp_path / "one", tmp_path / "two").startswith("one directory, not 2")
    assert list(tmp_path.iterdir()) == []


def prep_python(directory: Path) -> str:
    """A Python whose fairseq program sees the recordings and writes small tables; it is stopped once."""
    return program(
        directory / "prep-python",
        f"""#!/usr/bin/env bash
case $1 in
    *prep_librispeech_data.py)
        echo "$*" >>"{directory}/asked"
        [[ -e $PYTHONPATH/examples/speech_to_text/data_utils.py ]] || exit 3
        mkdir -p "$3/fbank80"
        if [[ ! -e "{directory}/stopped" ]]; then
            touch "{directory}/stopped" "$3/fbank80/half.npy"
            exit 4
        fi
        [[ ! -e $3/fbank80/half.npy ]] || exit 5
        for part in {" ".join(PARTS)}; do
            [[ -e $3/LibriSpeech/$part/1/2/1-2-0000.flac ]] || exit 6
            printf 'id\\taudio\\tn_frames\\ttgt_text\\tspeaker\\n%s\\tzip:1:2\\t9\\tsaid in %s\\t1\\n' "$part" "$part"\\
                >"$3/$part.tsv"
        done
        echo x >"$3/config.yaml"
        touch "$3/spm_unigram$7".{{model,txt}} ;;
    -c) [[ $2 == *sox_effects* ]] || exec {sys.executable} "$@" ;;
esac
""",
    )


def test_librispeech(tmp_path: Path) -> None:
    """With fairseq's program replaced: it needs a torchaudio that this environment does not have."""
    for part in PARTS:
        files = {f"LibriSpeech/{part}/1/2/1-2-0000.flac": b"fLaC", "LibriSpeech/README.TXT": b"x"}
        write_archive(tmp_path / "archives" / f"{part}.tar.gz", files)
    chosen = settings(tmp_path, PREP_PYTHON=prep_python(tmp_path), SIZE="1000")
    stopped = run("prepare_librispeech.sh", tmp_path / "made", **chosen)
    assert stopped.returncode == 4
    assert not (tmp_path / "made/data-bin").exists()
    completed("prepare_librispeech.sh", tmp_path / "made", **chosen)
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked[1].endswith(f"--output-root {tmp_path}/made/features --vocab-type unigram --vocab-size 1000")
    made = tmp_path / "made"
    tables = {name: (made / f"data-bin/{name}.tsv").read_text().splitlines() for name in ("train", "dev", "test-other")}
    assert {line for table in tables.values() for line in table[:1]} == {"id\taudio\tn_frames\ttgt_text\tspeaker"}
    assert [line.split("\t")[0] for line in tables["train"][1:]] == list(PARTS[:3])
    assert [line.split("\t")[0] for line in tables["dev"][1:]] == list(PARTS[3:5])
    assert (made / "test_sets").read_text() == "".join(f"{part}\t{part}\n" for part in PARTS[3:])
    for part in PARTS[3:]:
        assert (made / f"raw/{part}.en").read_text() == f"said in {part}\n"
        (row,) = (made / f"data-bin/{part}.tsv").read_text().splitlines()[1:]
        assert row.startswith(f"{part}\tzip")
    assert {"config.yaml", "spm_unigram1000.model", "spm_unigram1000.txt"} <= set(os.listdir(made / "data-bin"))
    before = contents(made / "data-bin")
    completed("prepare_librispeech.sh", tmp_path / "made", **chosen)
    assert contents(made / "data-bin") == before
    assert len((tmp_path / "asked").read_text().splitlines()) == 2


def test_tatoebas_held_out_sets_are_those_of_the_text_that_is_given(here: Path) -> None:
    for name, kept in (("first", "eins zwei drei"), ("second", "rot blau weiss")):
        for part in ("train", "valid", "test"):
            lines = ["a b c d"] if part == "train" else ["a b c d", kept]
            for language in ("de", "en"):
                write(here / name / f"{part}.{language}", lines)
        # It ends there, since no such test set exists.
        nowhere = here / "nowhere"
        said = refusal("prepare_tatoeba.sh", here / "made", "--raw", here / name, "--multi30k", nowhere)
        assert said.startswith(f"{nowhere}/test_2016_flickr.de: ")
        made = {path.name: path.read_text() for path in (here / "made.sets").glob("*.??")}
        assert made == dict.fromkeys(("valid.de", "valid.en", "test.de", "test.en"), f"{kept}\n")
    calls = (here / "made" / "calls").read_text().splitlines()
    assert calls == [f"scripts/prepare_tatoeba.sh RAW={here}/{name}" for name in ("first", "second")]
