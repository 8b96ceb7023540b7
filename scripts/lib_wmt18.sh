# shellcheck shell=bash disable=SC2154
# WMT'18 from its archives to data-bin: the steps of prepare_wmt18_en_fi.sh and prepare_wmt18_zh_en.sh. Sourced, with
#
#     source, target, other     the languages; the one that is not English

# segment INPUT OUTPUT: Chinese in words.
segment() {
    if ((DRY_RUN)); then
        run "$PYTHON" -m jieba --quiet --delimiter ' ' "$1"
    else
        "$PYTHON" -m jieba --quiet --delimiter ' ' "$1" >"$2.partial"
        mv -- "$2.partial" "$2"
    fi
}

options=(
    --source "$source" --target "$target" --tokeniser none --given-tokeniser moses --given-truecased --clean none
    --size "${SIZE:-32000}" --joint-codes "${JOINT_CODES:-0}" --joined "${JOINED:-0}"
    --vocabulary-threshold "${VOCABULARY_THRESHOLD:-50}"
)
pass_on WORKERS
fairseq_deep prepare "$DIR" "${options[@]}" --check
exit_if_prepared
[[ $other != zh || $DRY_RUN == 1 ]] || "$PYTHON" -c 'import jieba' 2>/dev/null ||
    die "$PYTHON cannot import jieba, which splits the Chinese test sets into words: pip install jieba"
note_call

fairseq_deep wmt --pair "$source-$target" --to "$original" newstest2017 newstest2018
claim "$original/test"
train=$original/training/train archive=wmt18-$other-en-corpus.gz
if [[ ! -e $train.en ]]; then
    path=wmt18/translation-task/preprocessed/$other-en/corpus.gz
    fairseq_deep download "$archive" "https://data.statmt.org/$path" "http://data.statmt.org/$path"
fi
once "$train.en" text columns "${ARCHIVE_DIR:-$CACHE}/$archive" "$train.$other" "$train.en"

# The test sets as the training text is: its punctuation, tokens and case.
for language in "$source" "$target"; do
    truecaser=$original/truecaser.$language
    [[ $language == zh ]] || once "$truecaser" text learn-truecaser "$train.$language" "$truecaser"
    for name in newstest2017 newstest2018; do
        raw=$original/test/$name.$language tokens=$original/tokens/$name.$language
        if [[ $language == zh ]]; then
            once "$tokens" segment "$raw" "$tokens"
            continue
        fi
        once "$tokens" text tokenise --language "$language" --normalise --aggressive "$raw" "$tokens.tokens"
        once "$tokens" text truecase --model "$truecaser" "$tokens.tokens" "$tokens"
        run rm -f -- "$tokens.tokens"
    done
done

fairseq_deep prepare "$DIR" "${options[@]}" --train "$train" --valid "$original/tokens/newstest2017" \
    --test "newstest2018=$original/tokens/newstest2018" \
    --raw "valid=$original/test/newstest2017" "newstest2018=$original/test/newstest2018" \
    --changed valid=punctuation newstest2018=punctuation
note_prepared
