"""The preparations of WMT from end to end, on small archives with the published layout."""

import gzip
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from fairseq_plugins.tools.cli.main import main
from tests.scripts import archives
from tests.scripts.fakes import without_binarising
from tests.scripts.running import completed, contents, refusal
from tests.texts import read as lines

DE, FR = "prepare_wmt14_en_de.sh", "prepare_wmt14_en_fr.sh"
# One pair of each training text by which its treatment is seen: punctuation, hyphens, escapes; and one to be dropped.
MARKED = (
    ("A well-known „Amen“ isn’t it.", "Ein all-bekanntes „Amen“ ist’s."),
    ("R&D <b> costs.", "F&E <b> kostet."),
    ("The last words.", "Die letzten Worte."),
)
UNEQUAL = ("One.", "Eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn.")
TEST_MARKED = ("The „test-set“ hasn’t A&B.", "Der „Test-Satz“ hat A&B.")


def text(source: archives.Source, count: int, target: str, *marked: tuple[str, str]) -> dict[str, list[str]]:
    """Made-up pairs, the marked ones in front."""
    taken = source.take(count, "en", target)
    return {"en": [pair[0] for pair in marked] + taken["en"], target: [pair[1] for pair in marked] + taken[target]}


def write(here: Path, made: Mapping[str, archives.Files]) -> None:
    for name, files in made.items():
        archives.write_archive(here / "archives" / name, files)


def write_wmt14(here: Path, target: str, count: int, years: Sequence[str], more: Sequence[str] = ()) -> archives.Source:
    """Europarl, Common Crawl, News Commentary and ``more``, then the test sets."""
    source = archives.Source()
    for number, name in enumerate([*list(archives.WMT14_TEXTS)[:3], *more]):
        marked = [*MARKED[number : number + 1], *([UNEQUAL] if number == 0 else [])]
        write(here, archives.wmt14_text(name, text(source, count, target, *marked)))
    for year in years:
        write(here, archives.newstest(year, text(source, 11, target, TEST_MARKED)))
    return source


@pytest.fixture
def here(tmp_path: Path) -> Path:
    directory = tmp_path / "a directory with spaces"
    (directory / "archives").mkdir(parents=True)
    return directory


def settings(here: Path, **more: str) -> dict[str, str]:
    return {"ARCHIVE_DIR": str(here / "archives"), "CHECKSUMS": "/dev/null", "SIZE": "60", **more}


@pytest.mark.slow
def test_wmt14_from_archives_to_numbers(here: Path) -> None:
    write_wmt14(here, "de", 40, ("2013", "2014"))
    chosen = settings(here, VARIANT="wmt14", TEST_SETS="newstest2014 newstest2013")
    made = here / "made"
    completed(DE, made, **chosen)
    # Europarl, Common Crawl, News Commentary; the pair of unequal lengths has gone.
    train = lines(made / "text/train.tok.en")
    assert len(train) == len(lines(made / "text/train.tok.de")) == 41 + 41 + 41
    assert (train[0], train[41], train[82]) == (
        "A well @-@ known &quot; Amen &quot; isn &apos;t it .",
        "R &amp; D &lt; b &gt; costs .",
        "The last words .",
    )
    assert lines(made / "text/train.tok.de")[0] == "Ein all @-@ bekanntes &quot; Amen &quot; ist &apos; s ."
    assert [line.replace("@@ ", "") for line in lines(made / "text/train.en")] == train
    # The validation set has the punctuation of the training text, the test set its own but for the apostrophe, which
    # fairseq's and Admin's scripts straighten; both are raw in raw/.
    assert lines(made / "text/valid.tok.de")[0] == "Der &quot; Test @-@ Satz &quot; hat A &amp; B ."
    assert lines(made / "text/newstest2014.tok.en")[0] == "The „ test @-@ set “ hasn &apos;t A &amp; B ."
    for name in ("valid", "newstest2014"):
        assert [lines(made / f"raw/{name}.{end}")[0] for end in ("en", "de")] == list(TEST_MARKED)
    assert lines(made / "test_sets") == ["test\tnewstest2014", "test1\tnewstest2013"]
    data_bin = {"dict.en.txt", "dict.de.txt", "train.en-de.en.bin", "test1.en-de.de.idx"}
    assert data_bin <= set(os.listdir(made / "data-bin"))
    assert (made / "data-bin/dict.en.txt").read_bytes() == (made / "data-bin/dict.de.txt").read_bytes()

    # A second call makes nothing, and needs no archive.
    before = contents(made)
    shutil.rmtree(here / "archives")
    assert ": creating" not in completed(DE, made, **chosen)
    assert contents(made) == before
    refused = refusal(DE, made, **{**chosen, "VARIANT": "wmt17"})
    assert "other settings (valid=every-100; was valid=)" in refused
    shutil.rmtree(made / "original")
    assert "prepared already" in completed(DE, made, **chosen)
    for name, value in (("TEST_SETS", "newstest2015"), ("APOSTROPHE", "keep")):
        refused = refusal(DE, made, **{**chosen, name: value})
        assert refused.startswith(f"{made}: prepared without {value if name == 'TEST_SETS' else 'APOSTROPHE=keep'}; ")


def test_googles_text_comes_in_subwords(here: Path) -> None:
    archives.write_archives("wmt16_en_de", here / "archives", 50)
    google = archives.Source().take(50, "en", "de")["en"]
    chosen = settings(here, VARIANT="wmt16-google", TEST_SETS="newstest2014", SIZE="", PYTHON=without_binarising(here))
    made = here / "made"
    completed(DE, made, **chosen)
    assert lines(made / "text/train.en") == [archives.subwords(line) for line in google]
    assert lines(made / "text/train.tok.en") == [archives.tokens(line) for line in google]
    raw = lines(made / "raw/newstest2014.en")
    assert lines(made / "text/newstest2014.tok.en") == [archives.tokens(line) for line in raw]
    [asked] = lines(here / "asked")
    assert "--joined-dictionary --nwordssrc 32768 --nwordstgt 32768" in asked
    # original/ may be deleted, as the head of the script says.
    shutil.rmtree(made / "original")
    shutil.rmtree(here / "archives")
    completed(DE, made, **chosen)
    assert not (made / "original").exists()


def test_french_reads_compressed_text_and_takes_validation_pairs_out_of_the_training_text(here: Path) -> None:
    more = ("training-parallel-un.tgz", "training-giga-fren.tar")
    write_wmt14(here, "fr", 280, ("2014",), more)
    # 1,404 pairs; the 1,333rd, in giga-fren, is for validation.
    assert "of 1,403 pairs" in completed(FR, here / "made", **settings(here, PYTHON=without_binarising(here)))
    assert lines(here / "made/raw/valid.fr") == archives.Source().take(1400, "fr")["fr"][1333 - 4 - 1 : 1333 - 4]


def write_wmt18(here: Path, source: str, target: str) -> dict[str, list[str]]:
    """The training text in two columns, and the test sets of both years, whose text is returned."""
    other = source if target == "en" else target
    columns = {"fi": ["talo on talo ."] * 18, "zh": ["安娜 的 房子 。"] * 18}
    columns["en"] = ["the House of Anna .", "Anna &apos;s House is the old one ."] * 9
    rows = archives.lines(map("\t".join, zip(columns[other], columns["en"], strict=True)))
    raw = {"en": ["The old “well-known” House isn’t it."], "fi": ["Talo „on“ talo."], "zh": ["安娜的房子。"]}
    raw = {language: 3 * raw[language] for language in (source, target)}
    write(here, {f"wmt18-{other}-en-corpus.gz": {"": rows}, **archives.newstest("2017", raw)})
    write(here, archives.newstest("2018", raw))
    return raw


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), [("en", "fi"), ("zh", "en")])
def test_wmt18_is_trained_on_the_organisers_tokens(here: Path, source: str, target: str) -> None:
    raw, script, made = write_wmt18(here, source, target), f"prepare_wmt18_{source}_{target}.sh", here / "made"
    # A word of Chinese has two characters here.
    (here / "modules/jieba").mkdir(parents=True)
    (here / "modules/jieba/__init__.py").touch()
    (here / "modules/jieba/__main__.py").write_text(
        "import re, sys\nassert sys.argv[1:4] == ['--quiet', '--delimiter', ' ']\n"
        "for line in open(sys.argv[4]): print(*re.findall('..?', line.strip()))\n"
    )
    path = f"{here}/modules:{os.environ.get('PYTHONPATH', '')}"
    chosen = settings(here, PYTHON=without_binarising(here), PYTHONPATH=path, VOCABULARY_THRESHOLD="1", SIZE="9")
    completed(script, made, **chosen)
    # It has the case of the truecased training text, with its hyphens and quotation marks.
    english = "the old &quot; well @-@ known &quot; House isn &apos;t it ."
    assert lines(made / "text/valid.tok.en") == [english] * 3
    tokens = english if source == "en" else "安娜 的房 子。"
    assert lines(made / f"text/newstest2018.tok.{source}") == [tokens] * 3
    train = {"fi": "talo on talo .", "en": "the House of Anna ."}[target]
    assert lines(made / f"text/train.tok.{target}")[0] == train
    for name in ("valid", "newstest2018"):
        assert {language: lines(made / f"raw/{name}.{language}") for language in raw} == raw
    assert {path.name for path in made.glob("codes*")} == {f"codes.{source}", f"codes.{target}"}
    assert "GIVEN_TRUECASED=1" in lines(made / "settings")
    before = contents(made)
    completed(script, made, **chosen)
    assert contents(made) == before


def test_wmt18_says_what_it_needs(here: Path) -> None:
    (here / "none/jieba").mkdir(parents=True)
    (here / "none/jieba/__init__.py").write_text("raise ImportError")
    path = f"{here}/none:{os.environ.get('PYTHONPATH', '')}"
    refused = refusal("prepare_wmt18_zh_en.sh", here / "made", **settings(here, PYTHONPATH=path))
    assert refused.endswith("cannot import jieba, which splits the Chinese test sets into words: pip install jieba")
    assert not (here / "made").exists()
    write_wmt18(here, "en", "fi")
    archive = here / "archives/wmt18-fi-en-corpus.gz"
    archive.write_bytes(gzip.compress(b"talo\thouse\ntalo\n"))
    refused = refusal("prepare_wmt18_en_fi.sh", here / "made", **settings(here))
    assert refused == f"{archive}: line 2 has 1 columns, not 2"


def test_texts_of_two_pairs_do_not_share_a_directory(here, monkeypatch, capsys):
    write(here, archives.newstest("2015", {"en": ["There."], "de": ["Dort."]}))
    for name, value in settings(here).items():
        monkeypatch.setenv(name, value)
    for pair, code in (("en-de", 0), ("en-de", 0), ("de-en", 2)):
        assert main(["wmt", "--pair", pair, "--to", str(here / "made"), "newstest2015"]) == code
    assert "made with other settings (pair=de-en; was pair=en-de); use another directory" in capsys.readouterr().err
