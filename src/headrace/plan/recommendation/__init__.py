"""What to run: options of model, quantization, runtime, hardware or API, by rules, ranked."""

from headrace.plan.recommendation.question import Limit, Question, parse_slo, question_of
from headrace.plan.recommendation.recommendation import Recommendation, recommend

__all__ = ["Limit", "Question", "Recommendation", "parse_slo", "question_of", "recommend"]
