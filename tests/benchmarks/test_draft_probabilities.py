"""How often drafts were right, by the probabilities they had."""

from benchmarks.speculation.draft_probabilities import BOUNDS, right_by_probability
from headrace.engine.drafts.passes.draft_generator import RatedDraft


def test_drafts_count_up_to_the_first_wrong_one() -> None:
    drafts = [RatedDraft(5, 0.95), RatedDraft(6, 0.2), RatedDraft(7, 0.1)]
    kinds = right_by_probability([(drafts, (5, 8, 7)), (drafts, (5, 6, 7)), (drafts, (5,))])
    assert dict(zip((0.0, *BOUNDS), kinds, strict=True)) == {
        0.0: [True], 0.2: [False, True], 0.4: [], 0.6: [], 0.8: [], 0.9: [True] * 3, 0.97: [],
    }  # fmt: skip
