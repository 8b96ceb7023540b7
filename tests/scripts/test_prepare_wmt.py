"""The preparations of WMT from end to end, on small archives with the published layout."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from fairseq_plugins.cli.main import main
from fairseq_plugins.text.bpe import learn
from tests.scripts import made_archives as made
from tests.scripts.archives import write_archive
from tests.scripts.fakes import without_binarising

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

# One pair of each training text by which its treatment is seen: punctuation, hyphens, escapes; and pairs to be dropped.
MARKED = {
    "europarl": ("A well-known „Amen“ isn’t it.", "Ein all-bekanntes „Amen“ ist’s."),
    "commoncrawl": ("R&D <b> costs.", "F&E <b> kostet."),
    "news": ("The last words.", "Die letzten Worte."),
    "too unequal": ("One.", "Eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn."),
}
TEST_MARKED = ("The „test-set“ has A&B.", "Der „Test-Satz“ hat A&B.")


def texts(count: int, seed: str, target: str, *marked: str) -> dict[str, list[str]]:
    """Made-up pairs, the marked ones in front."""
    source = [MARKED[name][0] for name in marked] + made.sentences(count, "en", seed)
    return {"en": source, target: [MARKED[name][1] for name in marked] + made.sentences(count, target, seed)}


def write_test_set(archives: Path, name: str, member: str, ends: Sequence[str], target: str, seed: str) -> None:
    source = [TEST_MARKED[0], *made.sentences(11, "en", seed)]
    reference = [TEST_MARKED[1], *made.sentences(11, target, seed)]
    write_archive(
        archives / name,
        {
            f"{member}-{ends[0]}.en.sgm": made.sgm(source, "src"),
            f"{member}-{ends[1]}.{target}.sgm": made.sgm(reference, "ref"),
            f"{member}-src.cs.sgm": made.sgm(source, "src"),
        },
    )


def write_training_texts(archives: Path, target: str, news_commentary: str, count: int = 40) -> None:
    pair = f"{target}-en"
    other = made.pair("training/europarl-v7.cs-en", texts(3, "cs", "fr"))
    europarl = made.pair(f"training/europarl-v7.{pair}", texts(count, "ep", target, "europarl", "too unequal"))
    write_archive(archives / "training-parallel-europarl-v7.tgz", {**other, **europarl})
    crawl = made.pair(f"commoncrawl.{pair}", texts(count, "cc", target, "commoncrawl"))
    write_archive(archives / "training-parallel-commoncrawl.tgz", {**crawl, f"commoncrawl.{pair}.annotation": b"x\n"})
    news = made.pair(f"training/news-commentary-{news_commentary}.{pair}", texts(count, "nc", target, "news"))
    write_archive(archives / f"training-parallel-nc-{news_commentary}.tgz", news)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    directory = tmp_path / "a directory with spaces"
    (directory / "archives").mkdir(parents=True)
    return directory


def run(here: Path, script: str, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "ARCHIVE_DIR": str(here / "archives"),
        "CHECKSUMS": "/dev/null",
        "SIZE": "60",
        "WORKERS": "1",
        **settings,
    }
    environment = {name: value for name, value in environment.items() if value}
    command = ["bash", str(SCRIPTS / script), str(here / "made"), *arguments]
    return subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, timeout=300)


def read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def bpe_joined(path: Path) -> list[str]:
    return [line.replace("@@ ", "") for line in read(path)]


def listing(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in sorted(files)}


@pytest.mark.slow
def test_wmt14_from_archives_to_numbers(here: Path) -> None:
    archives = here / "archives"
    write_training_texts(archives, "de", "v9")
    write_test_set(archives, "wmt13-test.tgz", "test/newstest2013", ("src", "src"), "de", "13")
    write_test_set(archives, "wmt14-test-full.tgz", "test-full/newstest2014-deen", ("src", "ref"), "de", "14")
    done = run(here, "prepare_wmt14_en_de.sh", TEST_SETS="newstest2014 newstest2013")
    assert done.returncode == 0, done.stderr
    text = here / "made/text"

    # Europarl, Common Crawl, News Commentary; the pair of unequal lengths has gone.
    train = read(text / "train.tok.en")
    assert len(train) == len(read(text / "train.tok.de")) == 41 + 41 + 41
    assert (train[0], train[41], train[82]) == (
        "A well @-@ known &quot; Amen &quot; isn &apos;t it .",
        "R &amp; D &lt; b &gt; costs .",
        "The last words .",
    )
    assert read(text / "train.tok.de")[0] == "Ein all @-@ bekanntes &quot; Amen &quot; ist &apos; s ."
    assert bpe_joined(text / "train.en") == train
    # The validation set has the punctuation of the training text, the test set its own; both are raw in raw/.
    assert read(text / "valid.tok.de")[0] == "Der &quot; Test @-@ Satz &quot; hat A &amp; B ."
    assert read(text / "newstest2014.tok.de")[0] == "Der „ Test @-@ Satz “ hat A & B .".replace("&", "&amp;")
    raw = [TEST_MARKED[1], *made.sentences(11, "de", "14")]
    assert read(here / "made/raw/newstest2014.de") == raw
    assert read(here / "made/raw/valid.de") == [TEST_MARKED[1], *made.sentences(11, "de", "13")]
    assert read(here / "made/test_sets") == ["test\tnewstest2014", "test1\tnewstest2013"]
    assert {"dict.en.txt", "dict.de.txt", "train.en-de.en.bin", "test1.en-de.de.idx"} <= set(
        os.listdir(here / "made/data-bin")
    )
    assert (here / "made/data-bin/dict.en.txt").read_bytes() == (here / "made/data-bin/dict.de.txt").read_bytes()
    # Only what was asked for has been unpacked.
    assert sorted(path.name for path in (here / "made/original").rglob("*.*-en.*")) == [
        f"{name}.de-en.{language}"
        for name in ("commoncrawl", "europarl-v7", "news-commentary-v9")
        for language in ("de", "en")
    ]

    # A second call makes nothing, and needs no archive.
    before = listing(here / "made")
    for archive in archives.iterdir():
        archive.unlink()
    again = run(here, "prepare_wmt14_en_de.sh", TEST_SETS="newstest2014 newstest2013")
    assert again.returncode == 0, again.stderr
    assert listing(here / "made") == before
    assert ": creating" not in again.stdout

    other = run(here, "prepare_wmt14_en_de.sh", VARIANT="wmt17")
    assert other.returncode == 2
    assert "other settings (valid=every-100; was valid=)" in other.stderr


def test_googles_text_comes_in_subwords(here: Path) -> None:
    english, german = (made.sentences(50, language, "g") for language in ("en", "de"))
    cut = [re.sub(r"\b(\w\w)(\w{4,})", r"\1@@ \2", line) for line in english]
    assert cut != english
    members = made.pair("train.tok.clean.bpe.32000", {"en": cut, "de": german})
    members |= {"bpe.32000": b"#version: 0.2\nk a</w>\n", "vocab.bpe.32000": b"ka\n", "train.tok.en": b"x\n"}
    for year in ("newstest2013", "newstest2014"):
        members |= made.pair(f"{year}.tok.bpe.32000", {"en": cut[:5], "de": german[:5]})
        members |= made.pair(year, {"en": [f"{year} {line}" for line in english[:5]], "de": german[:5]})
    write_archive(here / "archives/wmt16_en_de.tar.gz", members)
    settings = {"VARIANT": "wmt16-google", "TEST_SETS": "newstest2014", "SIZE": "", "PYTHON": without_binarising(here)}
    done = run(here, "prepare_wmt14_en_de.sh", **settings)
    assert done.returncode == 0, done.stderr
    assert read(here / "made/text/train.en") == cut
    assert read(here / "made/text/train.tok.en") == english
    assert read(here / "made/text/newstest2014.tok.en") == english[:5]
    assert read(here / "made/raw/newstest2014.en") == [f"newstest2014 {line}" for line in english[:5]]
    [asked] = read(here / "asked")
    assert "--joined-dictionary --nwordssrc 32768 --nwordstgt 32768" in asked
    before = listing(here / "made")
    assert run(here, "prepare_wmt14_en_de.sh", **settings).returncode == 0
    assert listing(here / "made") == before

    # original/ may be deleted, as the head of the script says.
    shutil.rmtree(here / "made/original")
    (here / "archives/wmt16_en_de.tar.gz").unlink()
    finished = run(here, "prepare_wmt14_en_de.sh", **settings)
    assert (finished.returncode, (here / "made/original").exists()) == (0, False), finished.stderr


def test_french_reads_compressed_text_and_takes_validation_pairs_out_of_the_training_text(here: Path) -> None:
    archives = here / "archives"
    write_training_texts(archives, "fr", "v9", count=400)
    write_archive(archives / "training-parallel-un.tgz", made.pair("un/undoc.2000.fr-en", texts(100, "un", "fr")))
    giga = made.compressed(made.pair("giga-fren.release2.fixed", texts(100, "giga", "fr")))
    write_archive(archives / "training-giga-fren.tar", giga)
    write_test_set(archives, "wmt14-test-full.tgz", "test-full/newstest2014-fren", ("src", "ref"), "fr", "14")
    done = run(here, "prepare_wmt14_en_fr.sh", PYTHON=without_binarising(here))
    assert done.returncode == 0, done.stderr
    # 1,404 pairs; the 1,333rd, in giga-fren, is for validation, and the one of unequal lengths goes.
    assert len(read(here / "made/text/train.en")) == 1404 - 1 - 1
    [valid] = read(here / "made/raw/valid.fr")
    assert valid == made.sentences(100, "fr", "giga")[1333 - (402 + 401 + 100 + 401) - 1]


@pytest.mark.slow
def test_dsinit_has_merges_and_rare_subwords_of_each_language(here: Path) -> None:
    """DS-Init, section 7.1: units of each side by itself; footnote 4: the filtered newstest2014."""
    write_training_texts(here / "archives", "de", "v9")
    write_test_set(here / "archives", "wmt13-test.tgz", "test/newstest2013", ("src", "src"), "de", "13")
    write_test_set(here / "archives", "wmt14-test-filtered.tgz", "test/newstest2014-deen", ("src", "ref"), "de", "f")
    write_test_set(here / "archives", "wmt17-test.tgz", "test/newstest2017-ende", ("src", "ref"), "de", "17")
    settings = {"VARIANT": "dsinit", "TEST_SETS": "newstest2014-filtered newstest2017", "VOCABULARY_THRESHOLD": "9"}
    done = run(here, "prepare_wmt14_en_de.sh", **settings, PYTHON=without_binarising(here))
    assert done.returncode == 0, done.stderr
    # No ratio: the pair that the others drop stays.
    assert len(read(here / "made/text/train.en")) == 42 + 41 + 41
    assert read(here / "made/test_sets") == ["test\tnewstest2014-filtered", "test1\tnewstest2017"]
    assert read(here / "made/raw/newstest2017.de") == [TEST_MARKED[1], *made.sentences(11, "de", "17")]
    # Neither validation nor training text is normalised.
    assert read(here / "made/text/valid.tok.de")[0] == "Der „ Test @-@ Satz “ hat A &amp; B ."
    assert not (here / "made/codes").exists()
    for language in ("en", "de"):
        merges = learn(read(here / f"made/text/train.tok.{language}"), 60, language)
        assert read(here / f"made/codes.{language}") == merges
        words = Counter(" ".join(read(here / f"made/text/train.{language}")).split())
        # What stays of a subword that is rarer than the threshold is single letters.
        kept = [word for word, count in words.items() if count < 9]
        assert kept
        assert all(len(word.removesuffix("@@")) == 1 for word in kept)
    assert "--joined-dictionary" not in (here / "asked").read_text()


@pytest.mark.slow
def test_the_apostrophe_of_the_test_sets(here: Path) -> None:
    """fairseq's and Admin's scripts write ' for ’ in them before they tokenise; the references stay."""
    write_training_texts(here / "archives", "de", "v9", count=8)
    pair = {"en": ["It’s the test’s end."], "de": ["Das ist’s."]}
    member = "test-full/newstest2014-deen"
    files = {f"{member}-src.en.sgm": made.sgm(pair["en"], "src"), f"{member}-ref.de.sgm": made.sgm(pair["de"], "ref")}
    write_archive(here / "archives/wmt14-test-full.tgz", files)
    write_test_set(here / "archives", "wmt13-test.tgz", "test/newstest2013", ("src", "src"), "de", "13")
    seen = {}
    for how in ("", "keep"):
        directory = here / f"is {how}"
        directory.mkdir()
        (directory / "archives").symlink_to(here / "archives")
        python = without_binarising(directory)
        done = run(directory, "prepare_wmt14_en_de.sh", TEST_SETS="newstest2014", APOSTROPHE=how, PYTHON=python)
        assert done.returncode == 0, done.stderr
        assert read(directory / "made/raw/newstest2014.en") == pair["en"]
        seen[how] = read(directory / "made/text/newstest2014.tok.en")
    assert seen == {"": ["It &apos;s the test &apos;s end ."], "keep": ["It ’ s the test ’ s end ."]}


def write_wmt18(here: Path, pair: str, source: str, target: str) -> dict[str, list[str]]:
    """The training text in two columns, and the test sets of both years."""
    first, second = pair.split("-")
    columns = {
        "en": ["the House of Anna .", "Anna &apos;s House is the old one ."] * 9,
        "fi": ["talo on talo ."] * 18,
        "zh": ["安娜 的 房子 。"] * 18,
    }
    text = made.lines([f"{one}\t{two}" for one, two in zip(columns[first], columns[second], strict=True)])
    (here / f"archives/wmt18-{pair}-corpus.gz").write_bytes(gzip.compress(text, mtime=0))
    raw = {"en": ["The old “well-known” House isn’t it."], "fi": ["Talo „on“ talo."], "zh": ["安娜的房子。"]}
    raw = {language: 3 * text for language, text in raw.items()}
    for year in ("17", "18"):
        member = f"test/newstest20{year}-{source}{target}"
        files = {f"{member}-src.{source}.sgm": made.sgm(raw[source], "src")}
        files[f"{member}-ref.{target}.sgm"] = made.sgm(raw[target], "ref")
        write_archive(here / f"archives/wmt{year}-test.tgz", files)
    return raw


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "pair", "source", "target"),
    [
        pytest.param("prepare_wmt18_en_fi.sh", "fi-en", "en", "fi", marks=pytest.mark.slow),
        ("prepare_wmt18_zh_en.sh", "zh-en", "zh", "en"),
    ],
)
def test_wmt18_is_trained_on_the_organisers_tokens(
    here: Path, script: str, pair: str, source: str, target: str
) -> None:
    raw = write_wmt18(here, pair, source, target)
    # A word of Chinese has two characters here.
    (here / "modules/jieba").mkdir(parents=True)
    (here / "modules/jieba/__init__.py").touch()
    (here / "modules/jieba/__main__.py").write_text(
        "import re, sys\nassert sys.argv[1:4] == ['--quiet', '--delimiter', ' ']\n"
        "for line in open(sys.argv[4]): print(*re.findall('..?', line.strip()))\n"
    )
    path = f"{here}/modules:{os.environ.get('PYTHONPATH', '')}"
    settings = {"PYTHON": without_binarising(here), "PYTHONPATH": path, "VOCABULARY_THRESHOLD": "1", "SIZE": "9"}
    done = run(here, script, **settings)
    assert done.returncode == 0, done.stderr
    tokens = {
        name: read(here / f"made/text/{name}.tok.{language}")
        for name, language in (("train", target), ("newstest2018", source), ("valid", "en"))
    }
    # As truecased as the training text, with its hyphens and quotation marks.
    english = "the old &quot; well @-@ known &quot; House isn &apos;t it ."
    assert tokens["valid"] == [english] * 3
    assert tokens["newstest2018"] == ([english] * 3 if source == "en" else ["安娜 的房 子。"] * 3)
    assert tokens["train"][0] == {"fi": "talo on talo .", "en": "the House of Anna ."}[target]
    for name in ("valid", "newstest2018"):
        for language in (source, target):
            assert read(here / f"made/raw/{name}.{language}") == raw[language]
    assert {path.name for path in (here / "made").glob("codes*")} == {f"codes.{source}", f"codes.{target}"}
    [asked] = read(here / "asked")
    assert f"--source-lang {source} --target-lang {target} " in asked
    assert "--joined-dictionary" not in asked
    assert "GIVEN_TRUECASED=1" in read(here / "made/settings")
    before = listing(here / "made")
    assert run(here, script, **settings).returncode == 0
    assert listing(here / "made") == before


def test_wmt18_from_where_it_is_and_what_it_needs(here: Path) -> None:
    dry = run(here, "prepare_wmt18_en_fi.sh", DRY_RUN="1", ARCHIVE_DIR="", SIZE="")
    assert dry.returncode == 0, dry.stderr
    assert "https://data.statmt.org/wmt18/translation-task/preprocessed/fi-en/corpus.gz" in dry.stdout
    assert "learn-bpe --merges 32000 " in dry.stdout
    assert "--threshold 50" in dry.stdout
    without = here / "none/jieba"
    without.mkdir(parents=True)
    (without / "__init__.py").write_text("raise ImportError")
    path = f"{here}/none:{os.environ.get('PYTHONPATH', '')}"
    refused = run(here, "prepare_wmt18_zh_en.sh", PYTHONPATH=path)
    assert refused.returncode == 2
    assert "cannot import jieba, which splits the Chinese test sets into words: pip install jieba" in refused.stderr
    assert not (here / "made").exists()
    write_wmt18(here, "fi-en", "en", "fi")
    archive = here / "archives/wmt18-fi-en-corpus.gz"
    archive.write_bytes(gzip.compress(b"talo\thouse\ntalo\n"))
    broken = run(here, "prepare_wmt18_en_fi.sh")
    assert broken.returncode == 2
    assert broken.stderr == f"error: {archive}: line 2 has 1 columns, not 2\n"


@pytest.mark.slow
def test_dsinits_french_is_developed_on_two_years(here: Path) -> None:
    archives = here / "archives"
    write_training_texts(archives, "fr", "v9", count=20)
    write_archive(archives / "training-parallel-un.tgz", made.pair("un/undoc.2000.fr-en", texts(20, "un", "fr")))
    giga = made.compressed(made.pair("giga-fren.release2.fixed", texts(20, "giga", "fr")))
    write_archive(archives / "training-giga-fren.tar", giga)
    for year in ("12", "13"):
        write_test_set(archives, f"wmt{year}-test.tgz", f"test/newstest20{year}", ("src", "src"), "fr", year)
    write_test_set(archives, "wmt14-test-full.tgz", "test-full/newstest2014-fren", ("src", "ref"), "fr", "14")
    done = run(here, "prepare_wmt14_en_fr.sh", VARIANT="dsinit", PYTHON=without_binarising(here))
    assert done.returncode == 0, done.stderr
    years = [[TEST_MARKED[1], *made.sentences(11, "fr", year)] for year in ("12", "13")]
    assert read(here / "made/raw/valid.fr") == years[0] + years[1]
    assert (here / "made/codes.fr").exists()
    assert "--joined-dictionary" not in (here / "asked").read_text()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--pair", "de-fr", "un"], "--pair de-fr: must be two languages, one of them en, for example en-de"),
        (["--pair", "en-de", "un"], "un: not available for en-de; available with en: fr"),
        (["--pair", "en-de", "europarl-7"], "unknown text of WMT 'europarl-7' (did you mean 'europarl-v7'?); legal"),
    ],
)
def test_a_text_that_there_is_not(
    words: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["wmt", "--to", str(tmp_path / "made"), *words]) == 2
    assert capsys.readouterr().err.startswith(f"error: {line}")
    assert not (tmp_path / "made").exists()


def test_a_dry_run_makes_nothing(here: Path) -> None:
    for script in ("prepare_wmt14_en_de.sh", "prepare_wmt14_en_fr.sh"):
        done = run(here, script, DRY_RUN="1", ARCHIVE_DIR="", CACHE=str(here / "cache"))
        assert done.returncode == 0, done.stderr
        assert "curl --output" in done.stdout
        assert "fairseq_plugins.cli preprocess" in done.stdout
    assert [path.name for path in here.iterdir()] == ["archives"]


STEPS = {
    "wmt14": ["nc-v9", "--max-length 250", "--ratio 1.5", "--merges 32000", "normalised/newstest2013"],
    "admin": ["nc-v12", "--max-length 80", "--ratio 9", "--merges 32764", "normalised/newstest2013"],
    "wmt17": ["nc-v12", "--max-length 250", "--ratio 1.5", "--merges 40000", "split --every 100"],
    "dsinit": [
        "nc-v9",
        "--min-length 1 --max-length 250 --ratio 250",
        "--merges 32000",
        "--threshold 50",
        "codes.de' --vocabulary",
    ],
    # google/seq2seq, bin/data/wmt16_en_de.sh: tokenizer.perl without -a, clean-corpus-n 1 80, 32,000 joint merges.
    "wmt16-raw": ["nc-v11", "--max-length 80 --ratio 9", "--merges 32000", "--nwordssrc 32768 --nwordstgt 32768"],
}


def test_each_variant_is_prepared_as_its_authors_do(here: Path) -> None:
    wrong = []
    for variant, words in STEPS.items():
        done = run(here, "prepare_wmt14_en_de.sh", VARIANT=variant, DRY_RUN="1", ARCHIVE_DIR="", SIZE="")
        assert done.returncode == 0, done.stderr
        expected = {
            **dict.fromkeys(words, True),
            "split --every": variant == "wmt17",
            "normalised/": variant in ("wmt14", "admin"),
            "--joined-dictionary": variant != "dsinit",
            "--aggressive": variant != "wmt16-raw",
            "straight/newstest2014.en": variant in ("wmt14", "admin", "wmt17"),
        }
        wrong += [f"{variant}: {word}" for word, there in expected.items() if (word in done.stdout) != there]
    assert wrong == []


MISTAKES = (
    ({"VARIANT": "wmt15"}, "unknown VARIANT 'wmt15'; legal values: wmt14 admin wmt17 dsinit wmt16-raw wmt16-google"),
    ({"TEST_SETS": "newstest2014 newtest2015"}, "unknown text of WMT 'newtest2015' (did you mean 'newstest2015'?)"),
    ({"VALID": "newstest2012"}, "unknown VALID 'newstest2012'"),
    ({"VARIANT": "wmt16-google"}, "VARIANT=wmt16-google comes in subwords, with VALID=newstest2013"),
    (
        {"VARIANT": "wmt16-google", "SIZE": "", "VALID": "every-100th"},
        "VARIANT=wmt16-google comes in subwords, with VALID=newstest2013",
    ),
    ({"CODES": "mine"}, "CODES=mine is set, but this corpus has its own; for other settings use scripts/prepare.sh"),
    ({"APOSTROPHE": "curly"}, "unknown APOSTROPHE 'curly'; legal values: straight keep"),
)


def test_a_mistake_is_one_line(here: Path) -> None:
    for settings, said in MISTAKES:
        done = run(here, "prepare_wmt14_en_de.sh", **settings)
        [line] = done.stderr.splitlines()
        assert (done.returncode, line.startswith("error: "), said in line) == (2, True, True), line
        assert not (here / "made").exists()


def test_archives_that_cannot_be_used_are_one_line(here: Path) -> None:
    missing = run(here, "prepare_wmt14_en_de.sh")
    assert missing.returncode == 2
    [line] = missing.stderr.splitlines()
    assert "archives/training-parallel-europarl-v7.tgz: no such file" in line
    assert "https://www.statmt.org/wmt13/training-parallel-europarl-v7.tgz" in line

    (here / "archives/training-parallel-europarl-v7.tgz").write_text("<html>Not found</html>")
    page = run(here, "prepare_wmt14_en_de.sh")
    assert page.returncode == 2
    assert "a web page, not training-parallel-europarl-v7.tgz" in page.stderr

    write_training_texts(here / "archives", "de", "v9", count=5)
    known = run(here, "prepare_wmt14_en_de.sh", CHECKSUMS="")
    assert known.returncode == 2
    assert "0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7 expected" in known.stderr


def test_a_known_archive_with_other_lines_is_refused(here: Path) -> None:
    """Lines are lost where a text is cut at other characters than the line feed; the count tells."""
    write_training_texts(here / "archives", "de", "v9", count=5)
    archive = here / "archives/training-parallel-europarl-v7.tgz"
    (here / "sums").write_text(f"{hashlib.sha256(archive.read_bytes()).hexdigest()}  {archive.name}\n")
    done = run(here, "prepare_wmt14_en_de.sh", CHECKSUMS=str(here / "sums"))
    assert done.returncode == 2
    assert "europarl-v7.de-en.en: 1920209 lines expected, 7 found" in done.stderr
