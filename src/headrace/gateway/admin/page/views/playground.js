// One conversation with several models side by side, answers shown as they arrive.

import { events, get } from "../api.js";
import { AnswerView } from "../shared/answer.js";
import { field, h, note, select } from "../shared/dom.js";
import { bound, moreField, parameterFields, readParameters } from "../shared/parameters.js";
import { count, ms, tokensPerSecond, usd } from "../format.js";

const MOST_MODELS = 6;
const PARAMETERS = ["temperature", "max_tokens", "top_p", "seed"];
// The input is kept while another view is open.
const kept = {
  models: [],
  system: "",
  turns: [["user", ""]],
  stream: true,
};

function turn(at, redraw) {
  const [role, text] = kept.turns[at];
  const input = h("textarea", {
    rows: 3,
    value: text,
    oninput: () => {
      kept.turns[at][1] = input.value;
    },
  });
  const who = select(
    [
      ["user", "User"],
      ["assistant", "Assistant"],
    ],
    role,
    () => {
      kept.turns[at][0] = who.value;
    },
  );
  who.setAttribute("aria-label", `Role of message ${at + 1}`);
  input.setAttribute("aria-label", `Message ${at + 1}`);
  const drop =
    kept.turns.length > 1 &&
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        "aria-label": `Remove message ${at + 1}`,
        onclick: () => {
          kept.turns.splice(at, 1);
          redraw();
        },
      },
      "Remove",
    );
  return h("div", { class: "turn" }, h("div", { class: "row" }, who, drop), input);
}

function column(model) {
  const answer = new AnswerView();
  const who = h("small", {});
  const element = h(
    "section",
    { class: "card column", "aria-label": model, "aria-busy": "true" },
    h("div", { class: "card-head" }, h("h2", {}, model), who),
    answer.elements,
  );
  const take = (event) => {
    if (event.kind === "began")
      who.textContent = event.target
        ? `${event.target}${event.attempts > 1 ? `, attempt ${event.attempts}` : ""}`
        : "";
    else if (event.kind === "text") answer.append(event.text);
    else if (event.kind === "reasoning") answer.reason(event.text);
    else if (event.kind === "tool_call") answer.calls.append(h("p", { class: "code" }, event.text));
    else if (event.kind === "failed") answer.fail(event.text);
    else if (event.kind === "ended") {
      answer.figures([
        ["First token", ms(event.first_token_ms)],
        ["Total", ms(event.total_ms)],
        ["Tokens in", count(event.prompt_tokens)],
        ["Tokens out", count(event.completion_tokens)],
        ["Speed", tokensPerSecond(event.completion_tokens, event.first_token_ms, event.total_ms)],
        [
          "Cost",
          event.cost_nusd === undefined
            ? event.completion_tokens === undefined
              ? "–"
              : "unknown"
            : usd(event.cost_nusd),
        ],
      ]);
      answer.draw();
      element.setAttribute("aria-busy", "false");
    }
  };
  const stop = () => {
    if (element.getAttribute("aria-busy") === "false") return;
    answer.draw();
    element.setAttribute("aria-busy", "false");
    if (!answer.problem.textContent)
      answer.took.replaceChildren(h("p", { class: "quiet" }, "Stopped."));
  };
  return { element, take, stop };
}

export function playgroundView(root) {
  let control = null;
  const chips = h("div", { class: "chips" });
  const turns = h("div", {});
  const results = h(
    "div",
    { class: "columns" },
    h(
      "p",
      { class: "quiet wide" },
      "Choose models, write a message, and send it. Answers appear here side by side; they are billed as usual, to the account “admin”.",
    ),
  );
  const add = h("input", {
    list: "try-models",
    placeholder: "Model, then Enter",
    autocomplete: "off",
  });
  const names = h("datalist", { id: "try-models" });
  const send = h("button", { class: "primary" }, "Send");
  const stop = h(
    "button",
    { type: "button", disabled: true, onclick: () => control?.abort() },
    "Stop",
  );
  const stream = h("input", {
    type: "checkbox",
    checked: kept.stream,
    id: "try-stream",
    onchange: () => {
      kept.stream = stream.checked;
    },
  });

  function choose(name) {
    const model = name.trim();
    if (!model) return;
    if (kept.models.length >= MOST_MODELS) {
      note(`${MOST_MODELS} models fit side by side.`, "warn");
      return;
    }
    kept.models.push(model);
    add.value = "";
    drawChips();
  }
  function drawChips() {
    chips.replaceChildren(
      ...kept.models.map((name, at) =>
        h(
          "span",
          { class: "chip" },
          name,
          h(
            "button",
            {
              type: "button",
              "aria-label": `Remove ${name}`,
              onclick: () => {
                kept.models.splice(at, 1);
                drawChips();
                add.focus();
              },
            },
            "×",
          ),
        ),
      ),
    );
    send.disabled = !kept.models.length;
  }
  const drawTurns = () => turns.replaceChildren(...kept.turns.map((_, at) => turn(at, drawTurns)));

  async function submit(event) {
    event.preventDefault();
    if (add.value.trim()) choose(add.value);
    let params;
    try {
      params = readParameters(kept, PARAMETERS);
    } catch (error) {
      note(`More parameters: ${error.message}`, "bad");
      return;
    }
    const messages = kept.turns
      .filter(([, text]) => text.trim())
      .map(([role, content]) => ({ role, content }));
    if (!messages.length) {
      turns.querySelector("textarea").focus();
      note("Write a message first.", "warn");
      return;
    }
    if (kept.system.trim()) messages.unshift({ role: "system", content: kept.system });
    control = new AbortController();
    const columns = kept.models.map(column);
    results.replaceChildren(...columns.map((one) => one.element));
    [send.disabled, stop.disabled] = [true, false];
    try {
      const body = { models: kept.models, messages, params, stream: kept.stream };
      for await (const told of events("POST", "try", { body, signal: control.signal }))
        columns[told.at].take(told);
    } catch (error) {
      if (error.name !== "AbortError") note(error.message, "bad");
    }
    columns.forEach((one) => one.stop());
    [send.disabled, stop.disabled] = [false, true];
  }

  add.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      choose(add.value);
    }
  });
  add.addEventListener("change", () => {
    if ([...names.children].some((one) => one.value === add.value)) choose(add.value);
  });
  const form = h(
    "form",
    { class: "card ask", onsubmit: submit },
    field("Models", add),
    chips,
    names,
    field("System prompt", bound(kept, "system", { rows: 2 })),
    h("h3", {}, "Conversation"),
    turns,
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        onclick: () => {
          const last = kept.turns.at(-1)[0];
          kept.turns.push([last === "user" ? "assistant" : "user", ""]);
          drawTurns();
        },
      },
      "Add a message",
    ),
    h(
      "details",
      {},
      h("summary", {}, "Parameters"),
      parameterFields(kept, PARAMETERS),
      moreField(kept),
      h("div", { class: "field check" }, stream, h("label", { for: "try-stream" }, "as a stream")),
    ),
    h("div", { class: "row" }, send, stop),
  );
  root.append(
    h("div", { class: "head" }, h("h1", {}, "Playground")),
    h("div", { class: "play" }, form, results),
  );
  drawChips();
  drawTurns();
  get("routes").then(
    (told) => {
      names.append(...told.models.map((one) => h("option", { value: one.name })));
      if (!kept.models.length && told.models.length) {
        kept.models.push(...told.models.slice(0, 2).map((one) => one.name));
        drawChips();
      }
    },
    () => {},
  );
  return () => control?.abort();
}
