// The calls that an answer makes, and the results that whoever reads them types.

import { codeBlock } from "./shared/markdown.js";
import { field, h } from "./shared/dom.js";

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still arriving, or not JSON: shown as it is
  }
}

// Pieces of calls, put together by their index, as the stream has them.
export function addCalls(calls, deltas) {
  for (const { index = 0, id, function: piece } of deltas) {
    const call = (calls[index] ??= { id: "", name: "", arguments: "" });
    if (id) call.id = id;
    if (piece?.name) call.name += piece.name;
    if (piece?.arguments) call.arguments += piece.arguments;
  }
}

// onSend: called with the results, in the order of the calls; null where they are only shown.
export function drawCalls(root, calls, onSend) {
  const inputs = [];
  const cards = calls.filter(Boolean).map((call) => {
    const card = h(
      "section",
      { class: "call", "aria-label": `Call of ${call.name}` },
      h("p", {}, "Calls ", h("b", { class: "code" }, call.name)),
      codeBlock(pretty(call.arguments), "arguments"),
    );
    if (onSend) {
      const input = h("textarea", { rows: 2, class: "code", placeholder: '{"degrees": 21}' });
      inputs.push(input);
      card.append(field(`Result of ${call.name}`, input));
    }
    return card;
  });
  if (!onSend) {
    root.replaceChildren(...cards);
    return;
  }
  const send = () => onSend(inputs.map((input) => input.value));
  const form = h(
    "form",
    {
      onsubmit: (event) => {
        event.preventDefault();
        send();
      },
    },
    cards,
    h("button", { class: "primary" }, inputs.length > 1 ? "Send the results" : "Send the result"),
  );
  root.replaceChildren(form);
}
