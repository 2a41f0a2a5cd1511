// Models, their targets, their health and why they are skipped.

import { get, post } from "../api.js";
import { failure } from "../failure.js";
import { confirm, empty, field, h, later, note, table } from "../shared/dom.js";
import { count, price, seconds } from "../format.js";

const REFRESH_MS = 4000;
const STRATEGIES = {
  weighted: "at random, in proportion to weight",
  ordered: "the first of the list",
  least_busy: "the one with the fewest requests",
  latency: "the fastest to a first token",
  throughput: "the most tokens per second",
  price: "the cheapest",
};
const EXAMPLE = (model) =>
  JSON.stringify(
    { model, messages: [{ role: "user", content: "Hello" }], max_tokens: 256 },
    null,
    2,
  );

function health(one, workers) {
  const many =
    workers > 1 && one.worker_count < workers
      ? ` in ${one.worker_count} of ${workers} processes`
      : "";
  if (one.taken_out) return h("span", { class: "mark warn" }, "Taken out by hand");
  if (one.breaker === "open")
    return h(
      "span",
      { class: "mark bad" },
      `Not used${many}${one.for_s ? `, ${seconds(one.for_s)} more` : ""}`,
    );
  if (one.breaker === "probing") return h("span", { class: "mark warn" }, `On trial${many}`);
  if (!one.usable)
    return h(
      "span",
      { class: "mark bad" },
      `Its keys are resting${one.for_s ? `, ${seconds(one.for_s)} more` : ""}`,
    );
  return h("span", { class: "mark good" }, "In use");
}

function priced(one) {
  if (!one.price) return h("span", { class: "quiet" }, "unknown");
  const from = one.price.as_of ? `as of ${one.price.as_of}` : "of the file";
  return h(
    "div",
    { title: one.price.source || "stated in the gateway's file" },
    `${price(one.price.input)} / ${price(one.price.output)}`,
    h("small", { class: "block" }, from),
  );
}

function model(one, workers, setBreaker) {
  const columns = [
    ["Target", "name"],
    ["State", ""],
    ["Weight", "n"],
    ["Under way", "n"],
    ["First token", "n"],
    ["Tokens/s", "n"],
    ["$ per million, in / out", "n"],
    ["", "n"],
  ];
  const several = !one.made_of && one.targets.length > Math.max(1, one.variants.length);
  const shared = one.variants.reduce((sum, side) => sum + side.weight, 0);
  const ordered = new Set(one.targets.map((target) => target.order)).size > 1;
  const button = (target) =>
    target.taken_out || target.breaker === "open"
      ? h(
          "button",
          {
            type: "button",
            class: "quiet",
            "aria-label": `Put ${target.target} back`,
            onclick: () => setBreaker(target.target, "closed"),
          },
          "Put back",
        )
      : h(
          "button",
          {
            type: "button",
            class: "quiet",
            "aria-label": `Take ${target.target} out`,
            onclick: () =>
              confirm(
                `Take ${target.target} out?`,
                "It gets no requests until you put it back or the gateway's file is reloaded. Running requests continue.",
                "Take out",
                () => setBreaker(target.target, "open"),
              ),
          },
          "Take out",
        );
  const rows = one.targets.map((target) => [
    h(
      "div",
      {},
      h("b", {}, target.target),
      one.variants
        .filter((side) => side.targets.includes(target.target))
        .map((side) =>
          h(
            "small",
            { class: "block" },
            `variant ${side.name}, ${Math.round((100 * side.weight) / shared)} % `,
            side.taken_out ? h("span", { class: "mark bad" }, "taken out: failed too often") : "",
          ),
        ),
      ordered ? h("small", { class: "block" }, `order ${target.order}`) : "",
      target.context_tokens
        ? h("small", { class: "block" }, `${count(target.context_tokens)} tokens of context`)
        : "",
    ),
    h(
      "div",
      {},
      health(target, workers),
      target.last_failure
        ? h("small", { class: "block said-failure" }, `last failure: ${target.last_failure}`)
        : "",
    ),
    count(target.weight),
    target.max_in_flight
      ? `${count(target.in_flight)} of ${count(target.max_in_flight)}`
      : count(target.in_flight),
    seconds(target.first_token_s),
    target.tokens_per_s === null ? "–" : count(Math.round(target.tokens_per_s)),
    priced(target),
    button(target),
  ]);
  const more = [
    one.made_of && `Asks ${one.made_of}`,
    one.variants.length && `Split by ${one.assign_by} between ${one.variants.length} variants`,
    several && STRATEGIES[one.strategy] && `Chooses ${STRATEGIES[one.strategy]}`,
    one.sticky !== "none" && `kept by ${one.sticky}`,
    one.aliases.length && `also called ${one.aliases.join(", ")}`,
    one.fallbacks.length && `then ${one.fallbacks.join(", ")}`,
  ]
    .filter(Boolean)
    .join("; ");
  return h(
    "section",
    { class: "card model", "aria-label": one.name },
    h(
      "div",
      { class: "card-head" },
      h("h2", {}, one.name),
      one.usable ? "" : h("span", { class: "mark bad" }, "No usable target"),
      h("small", {}, more),
    ),
    table(columns, rows, { class: "stack routed" }),
  );
}

function keys(one) {
  if (!one.keys) {
    return "none needed";
  }
  if (!one.resting_keys) {
    return `${one.keys} in use`;
  }
  return [
    h("span", { class: "mark warn" }, `${one.resting_keys} of ${one.keys} resting`),
    one.refused.map((why) => h("small", { class: "block said-failure" }, why)),
  ];
}

function providers(told) {
  return h(
    "section",
    { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, "Providers")),
    table(
      [
        ["Provider", "name"],
        ["Keys", ""],
        ["Connections", "n"],
      ],
      told.providers.map((one) => [one.name, keys(one), count(one.connections)]),
      { class: "stack" },
    ),
  );
}

function choice(told) {
  if (!told.choice) return "";
  return [
    told.choice.said.map((one) => h("p", { class: "chosen" }, one)),
    told.choice.question.map(([role, text]) => h("p", { class: "quiet" }, `${role}: ${text}`)),
  ].flat();
}

function decision(told) {
  const hangs = told.choice && told.choice.model === null;
  const asked = told.candidates.length
    ? h(
        "ol",
        { class: "candidates" },
        told.candidates.map((one) =>
          h(
            "li",
            {},
            h("b", {}, one.target),
            h("small", {}, ` for ${one.model}`),
            h("p", {}, one.reasons.join("; ")),
          ),
        ),
      )
    : h("p", { class: "bad" }, "No target would be tried.");
  return [
    told.note ? h("p", { class: "bad" }, told.note) : "",
    choice(told),
    h("h3", {}, hangs ? "May be tried, depending on the answers" : "Tried in this order"),
    asked,
    told.left_out.length
      ? [
          h("h3", {}, "Not tried"),
          h(
            "ul",
            { class: "candidates" },
            told.left_out.map((one) =>
              h(
                "li",
                {},
                h("b", {}, one.target),
                h("small", {}, ` for ${one.model}`),
                h("p", {}, one.reason),
              ),
            ),
          ),
        ]
      : "",
  ];
}

function explaining() {
  const input = h("textarea", { rows: 11, spellcheck: "false", class: "code" });
  const out = h(
    "div",
    { role: "status" },
    h("p", { class: "quiet" }, "The order of targets, and why, is shown here."),
  );
  const form = h(
    "form",
    {
      class: "card explain",
      onsubmit: async (event) => {
        event.preventDefault();
        try {
          const told = await post("explain", { body: JSON.parse(input.value) });
          out.replaceChildren(...decision(told).flat());
        } catch (error) {
          out.replaceChildren(
            h(
              "p",
              { class: "bad" },
              error instanceof SyntaxError ? `This is not JSON: ${error.message}` : error.message,
            ),
          );
        }
      },
    },
    h(
      "div",
      { class: "card-head" },
      h("h2", {}, "Explain a request"),
      h("small", {}, "Which targets would be tried now, in which order and why. Nothing is sent."),
    ),
    h(
      "div",
      { class: "halves" },
      h("div", {}, field("Request (JSON)", input), h("button", { class: "primary" }, "Explain")),
      out,
    ),
  );
  return {
    form,
    suggest: (name) => {
      if (!input.value) input.value = EXAMPLE(name);
    },
  };
}

export function routesView(root) {
  let timer = null;
  let ended = false;
  const summary = h("span", { class: "quiet" });
  const body = h("div", {}, h("p", { class: "quiet" }, "Loading"));
  const explain = explaining();

  async function setBreaker(target, state) {
    try {
      await post(`targets/${target.split("/").map(encodeURIComponent).join("/")}/breaker`, {
        state,
      });
      note(state === "open" ? `${target} gets no requests.` : `${target} gets requests again.`);
      load();
    } catch (error) {
      note(error.message, "bad");
    }
  }

  async function load() {
    clearTimeout(timer);
    if (ended) return;
    try {
      const told = await get("routes");
      if (ended) return;
      const running = told.workers > 1 ? `, ${told.workers} processes` : "";
      summary.textContent = `${count(told.in_flight)} requests running${running}`;
      const focused = document.activeElement?.getAttribute("aria-label");
      body.replaceChildren(
        ...(told.models.length
          ? told.models.map((one) => model(one, told.workers, setBreaker))
          : [
              empty(
                "No models",
                "The gateway's file names no models; clients reach providers as provider/model.",
              ),
            ]),
        providers(told),
      );
      if (focused && document.activeElement === document.body)
        body.querySelector(`[aria-label="${CSS.escape(focused)}"]`)?.focus();
      explain.suggest(told.models[0]?.name || "provider/model");
    } catch (error) {
      if (!ended) body.replaceChildren(failure(error));
      if (error.status === 401) return;
    }
    if (!ended) timer = later(load, REFRESH_MS);
  }

  root.append(h("div", { class: "head" }, h("h1", {}, "Routes"), summary), body, explain.form);
  load();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}
