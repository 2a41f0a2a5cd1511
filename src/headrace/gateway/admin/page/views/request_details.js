// One request: its outcome, attempts, time and cost, and its bodies where they are stored.

import { h } from "../shared/dom.js";
import { count, moment, ms, OUTCOMES, tokensPerSecond, usd } from "../format.js";

const USAGE = [
  ["input_tokens", "Input tokens"],
  ["cache_read_tokens", "Cached input tokens"],
  ["cache_write_tokens", "Written to the cache"],
  ["cache_write_1h_tokens", "Written to the cache for 1 h"],
  ["input_audio_tokens", "Audio input tokens"],
  ["output_tokens", "Output tokens"],
  ["reasoning_tokens", "Reasoning tokens"],
  ["output_audio_tokens", "Audio output tokens"],
  ["images", "Images"],
];
const WITHOUT = {
  settings: "The gateway's file leaves bodies out of the request log.",
  client: "The client requested that its bodies are not stored.",
  zero_retention: "Its key allows no retention (zero_retention).",
  unreadable: "Its bodies could not be read.",
};
const BESIDES = {
  hedge: "A second attempt beside the first",
  judge: "A judgement",
  router: "A choice of model",
  stage: "An earlier stage",
  shadow: "A shadow copy; its answer is discarded",
};

const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([title, value]) => [h("dt", {}, title), h("dd", {}, value)]),
  );

function attempts(entry) {
  if (!entry.attempts.length)
    return h(
      "p",
      { class: "quiet" },
      entry.cache ? "Answered from the cache: no target was used." : "No target was tried.",
    );
  const end = Math.max(
    entry.total_ms,
    ...entry.attempts.map((one) => one.began_ms + one.lasted_ms),
    1,
  );
  return h(
    "ol",
    { class: "attempts" },
    entry.attempts.map((one) => {
      const bar = h(
        "span",
        { class: `stretch ${one.failure ? "bad" : "good"}`, "aria-hidden": "true" },
        h("i"),
      );
      bar.style.setProperty("--from", one.began_ms / end);
      bar.style.setProperty("--long", one.lasted_ms / end);
      const became = one.failure
        ? `${one.failure.replaceAll("_", " ")}${one.status ? `, HTTP ${one.status}` : ""}`
        : "answered";
      return h(
        "li",
        {},
        h(
          "div",
          { class: "row" },
          h("b", {}, one.target),
          h("span", { class: one.failure ? "bad" : "good" }, became),
          h("small", { class: "n" }, `after ${ms(one.began_ms)}, for ${ms(one.lasted_ms)}`),
        ),
        bar,
        one.message && h("p", { class: "said" }, one.message),
      );
    }),
  );
}

function usage(line) {
  const { entry } = line;
  if (!entry.usage) return h("p", { class: "quiet" }, "No tokens were counted.");
  const about = entry.usage_from === "estimated" ? " (estimated: the provider did not report it)" : "";
  return facts([
    ...USAGE.map(([name, words]) => [words, entry.usage[name] ? count(entry.usage[name]) : null]),
    [
      "Cost",
      entry.cost_nusd === null ? "unknown: the target has no price" : `$${line.cost_usd}${about}`,
    ],
    [
      "Speed",
      entry.stream
        ? tokensPerSecond(line.completion_tokens, entry.first_token_ms, entry.total_ms)
        : null,
    ],
  ]);
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function body(title, kept) {
  if (!kept) return null;
  const more = [
    kept.cut && `the beginning of ${count(kept.bytes)} bytes`,
    kept.redacted && `${count(kept.redacted)} values replaced`,
    kept.assembled && "assembled from a stream",
  ]
    .filter(Boolean)
    .join(", ");
  return h(
    "details",
    { open: true },
    h("summary", {}, title, more && h("small", {}, ` ${more}`)),
    h("pre", { class: "body" }, pretty(kept.text)),
  );
}

function bodies(told) {
  if (!told.keeps_bodies)
    return h("p", { class: "quiet" }, "Requests and answers are not kept: the gateway has no request log.");
  if (!told.record)
    return h("p", { class: "quiet" }, "The request log has nothing with this id (any more, or yet).");
  if (told.record.without_bodies)
    return h(
      "p",
      { class: "quiet" },
      WITHOUT[told.record.without_bodies] || told.record.without_bodies,
    );
  return h("div", {}, body("Request", told.record.request), body("Answer", told.record.reply));
}

function one(line, labels) {
  const { entry } = line;
  const label = labels.get(entry.key);
  const [words, kind] = OUTCOMES[entry.outcome];
  const account = [entry.organisation, entry.team, entry.user, label && `“${label}”`, entry.key]
    .filter(Boolean)
    .join(" / ");
  return [
    entry.purpose && h("h3", {}, BESIDES[entry.purpose] || entry.purpose),
    facts([
      ["Id", h("span", { class: "code" }, entry.id)],
      ["When", moment(entry.at_s)],
      ["Outcome", h("span", { class: `mark ${kind}` }, `${words}, HTTP ${entry.status}`)],
      ["Model", entry.model],
      ["Target", entry.target || "none answered"],
      ["Account", account || "none"],
      ["Tags", entry.tags && entry.tags.join(", ")],
      ["Variant of the test", entry.variant],
      ["API", `${entry.dialect}, ${entry.operation}${entry.stream ? ", streamed" : ""}`],
      ["Ended with", entry.finish],
      ["From the cache", entry.cache && "yes"],
      ["Ignored parameters", entry.ignored && entry.ignored.join(", ")],
      ["Dropped from the answer", entry.dropped && entry.dropped.join(", ")],
      ["Skipped targets", entry.skipped && entry.skipped.join("; ")],
    ]),
    entry.error && h("p", { class: "said bad" }, entry.error),
    h("h3", {}, "Attempts"),
    attempts(entry),
    h("h3", {}, "Times"),
    facts([
      ["First token", entry.stream ? ms(entry.first_token_ms) : null],
      ["Total", ms(entry.total_ms)],
      ["Of which in the gateway", ms(entry.overhead_us / 1000)],
    ]),
    h("h3", {}, "Tokens and cost"),
    usage(line),
  ];
}

function feedback(scores) {
  if (!scores.length) return [];
  return [
    h("h3", {}, "Feedback"),
    facts(
      scores.map((one) => [
        one.key ? `${one.name}, by ${one.key}` : one.name,
        one.comment ? `${one.score}: ${one.comment}` : `${one.score}`,
      ]),
    ),
  ];
}

export const requestDetails = (told, labels) =>
  [
    ...told.lines.flatMap((line) => one(line, labels)),
    ...feedback(told.feedback),
    h("h3", {}, "Request and answer"),
    bodies(told),
  ].filter(Boolean);
