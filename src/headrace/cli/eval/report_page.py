"""A report as a table and as a page that needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.eval.divergence import Divergence
from headrace.eval.report import QualityReport, ReportedFile
from headrace.page.figures import DASH, figure, share
from headrace.page.markup import tag
from headrace.page.page import page, section, sheet_markup
from headrace.page.plots.frame import Key, Plot
from headrace.page.plots.named_points import Group, NamedPoint, named_points
from headrace.page.plots.scale import Scale, linear, suited
from headrace.page.sheet import Cell, Sheet

_FRONT, _BEATEN = Key("on the front", "c1"), Key("beaten by another file", "c2")


def quality_sheet(report: QualityReport) -> Sheet:
    """A line for each file, from small to large, and the reference last."""
    files = [*report.files, report.base]
    speeds = any(file.speed is not None for file in files)
    limits = any(file.speed is not None and file.speed.mbu is not None for file in files)
    columns: tuple[str, ...] = (
        "file",
        "MB",
        "bits",
        "PPL ratio",
        "KL mean",
        "KL p99.9",
        "same top",
    )
    columns += ("tokens/s",) if speeds else ()
    columns += ("MBU",) if limits else ()
    rows = []
    for file in files:
        cells = [_name(file, report), *_sizes(file), *_quality(file.divergence)]
        cells += [_speed(file)] if speeds else []
        cells += [_mbu(file)] if limits else []
        rows.append(tuple(cells))
    return Sheet(f"Beside {report.base.facts.name}", columns, tuple(rows), _notes(report, limits))


def quality_page(report: QualityReport) -> str:
    """The whole document."""
    some = report.files[0].divergence
    tokens = "" if some is None else f", {some.tokens:,} tokens in windows of {some.context}"
    plots = [
        _plot(report, "Size and mean KL divergence", "mean KL, nats",
              lambda of: (of.kl_mean, of.kl_error)),
        _plot(report, "Size and the worst token in a thousand", "KL p99.9, nats",
              lambda of: (of.kl_quantiles["0.999"], of.kl_quantile_errors["0.999"])),
        _plot(report, "Size and perplexity", "perplexity over the reference's",
              lambda of: (of.perplexity_ratio, of.perplexity_ratio_error), zero=False),
    ]  # fmt: skip
    parts = [
        tag("h1", f"Files of {report.base.facts.name}"),
        tag("p", f"Judged on {report.text}{tokens}, beside the reference.", class_="sub"),
        tag(
            "p",
            f"headrace {report.version}, {report.machine}, {report.measured_at}",
            class_="sub",
        ),
        section("Size and quality", [plot.markup for plot in plots if plot is not None]),
        section("Figures", [sheet_markup(quality_sheet(report)), sheet_markup(_kinds(report))]),
    ]
    return page(f"Files of {report.base.facts.name}", parts)


def _name(file: ReportedFile, report: QualityReport) -> Cell:
    if file is report.base:
        return Cell(file.facts.name, "the reference")
    return Cell(file.facts.name, "" if file.front else "beaten by another file")


def _sizes(file: ReportedFile) -> tuple[Cell, Cell]:
    return Cell(f"{file.facts.nbytes / 1e6:,.1f}"), Cell(f"{file.facts.bits_per_weight:.2f}")


def _quality(of: Divergence | None) -> tuple[Cell, ...]:
    if of is None:
        return (Cell(DASH),) * 4
    return (
        Cell(f"{of.perplexity_ratio:.4f}", f"± {of.perplexity_ratio_error:.4f}"),
        Cell(figure(of.kl_mean), f"± {figure(of.kl_error)}"),
        Cell(figure(of.kl_quantiles["0.999"]), f"± {figure(of.kl_quantile_errors['0.999'])}"),
        Cell(f"{of.same_top:.2%}", f"± {of.same_top_error:.2%}"),
    )


def _speed(file: ReportedFile) -> Cell:
    if file.speed is None:
        return Cell(DASH)
    of = file.speed
    span = f"{figure(of.least_tokens_per_s)} to {figure(of.most_tokens_per_s)}"
    return Cell(figure(of.tokens_per_s), span)


def _mbu(file: ReportedFile) -> Cell:
    return Cell(share(file.speed.mbu if file.speed is not None else None))


def _notes(report: QualityReport, limits: bool) -> tuple[str, ...]:
    some = report.files[0].divergence
    notes = [
        "MB is 10^6 bytes of tensors as stored, bits are those bytes over all values; KL is in "
        "nats, from the reference; behind ± stands the standard error"
        + ("." if some is None else f" over {some.blocks} parts of the text.")
    ]
    if report.base.speed is not None and not limits:
        notes.append(
            "No MBU: `headrace bench machine` has not measured this level and number of threads."
        )
    return tuple(notes)


def _kinds(report: QualityReport) -> Sheet:
    rows = []
    for file in (*report.files, report.base):
        kinds = ", ".join(
            f"{name} {share(nbytes / max(1, file.facts.nbytes))}"
            for name, nbytes in file.facts.kinds.items()
        )
        rows.append((Cell(file.facts.name), Cell(kinds)))
    return Sheet("Bytes by kind", ("file", "kinds"), tuple(rows), names=2)


def _plot(
    report: QualityReport,
    title: str,
    y_title: str,
    of: Callable[[Divergence], tuple[float, float]],
    *,
    zero: bool = True,
) -> Plot | None:
    def points(front: bool) -> Sequence[NamedPoint]:
        found = []
        for file in report.files:
            if file.divergence is None or file.front is not front:
                continue
            value, error = of(file.divergence)
            about = f"{file.facts.bits_per_weight:.2f} bits, {figure(value)} ± {figure(error)}"
            low = value - error
            # A bar that would reach 0 or less has no end on a logarithmic axis.
            span = (low if low > 0 else value, value + error)
            found.append(
                NamedPoint(file.facts.name, file.facts.nbytes / 1e6, value, about=about, span=span)
            )
        return found

    def up(values: Sequence[float], start: float, end: float) -> Scale:
        return suited(values, start, end) if zero else linear(values, start, end, zero=False)

    return named_points(
        title,
        (Group(_FRONT, points(True)), Group(_BEATEN, points(False))),
        lambda values, start, end: linear(values, start, end, zero=False),
        up,
        x_title="MB",
        y_title=y_title,
        x_label=figure,
        y_label=figure,
        caption="Lower left is better. Bars are one standard error.",
    )
