"""Plans as a page that stands alone: verdicts, tables, plots, and where each figure comes from."""

from headrace.plan.page.document import plan_page

__all__ = ["plan_page"]
