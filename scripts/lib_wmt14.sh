# shellcheck shell=bash disable=SC2154
# WMT'14 from its archives to data-bin: the steps of prepare_wmt14_en_de.sh and prepare_wmt14_en_fr.sh. Sourced, with
#
#     target                de or fr
#     texts, trains         the training texts: names for fairseq-deep wmt, and prefixes of their files in original/
#     valid                 every-Nth, newstestYEAR, or several years: newstest2012+newstest2013
#     test_sets             newstestYEAR ...
#     normalise             train: validation text gets the punctuation of the training text; none
#     apostrophe            straight: ' for ’ in test sets; keep
#     options               for fairseq-deep prepare, and size, joint_codes, joined and threshold, its defaults here

[[ $apostrophe == straight || $apostrophe == keep ]] || die "unknown APOSTROPHE '$apostrophe'; legal values: straight keep"
options+=(
    --size "${SIZE:-$size}" --joint-codes "${JOINT_CODES:-$joint_codes}" --joined "${JOINED:-$joined}"
    --vocabulary-threshold "${VOCABULARY_THRESHOLD:-$threshold}"
)
fairseq_deep prepare "$DIR" "${options[@]}" --valid "$valid" --check
exit_if_prepared
note_call

years=()
[[ $valid == every-* ]] || IFS=+ read -r -a years <<<"$valid"
fairseq_deep wmt --pair "en-$target" --to "$original" "${texts[@]}" "${years[@]}" "${test_sets[@]}"
claim "$original/test"
sets=()
for prefix in "${trains[@]}"; do sets+=(--train "$original/$prefix"); done

if [[ $valid == every-* ]]; then
    sets+=(--valid "$valid")
elif [[ $normalise == none ]]; then
    sets+=(--valid "$original/test/$valid")
else
    files=("${years[@]/#/$original/test/}")
    for language in en "$target"; do
        raw=$original/years/$valid.$language normalised=$original/normalised/$valid.$language
        once "$raw" text select-every --every 1 "${files[@]/%/.$language}" "$raw"
        once "$normalised" text normalise --language "$language" "${files[@]/%/.$language}" "$normalised"
    done
    sets+=(--valid "$original/normalised/$valid" --raw "valid=$original/years/$valid" --changed valid=punctuation)
fi

for name in "${test_sets[@]}"; do
    if [[ $apostrophe == keep ]]; then
        sets+=(--test "$name=$original/test/$name")
        continue
    fi
    for language in en "$target"; do
        straight=$original/straight/$name.$language
        once "$straight" text straighten "$original/test/$name.$language" "$straight"
    done
    sets+=(--test "$name=$original/straight/$name" --raw "$name=$original/test/$name" --changed "$name=apostrophes")
done

fairseq_deep prepare "$DIR" "${options[@]}" "${sets[@]}"
note_prepared
