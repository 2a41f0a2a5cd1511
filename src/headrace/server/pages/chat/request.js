// The request that a conversation and the settings become.

import { readParameters } from "./shared/parameters.js";

export const SAMPLING = ["temperature", "top_p", "top_k", "min_p", "max_tokens", "seed"];
export const REASONING = ["thinking_token_budget"];
const PARAMETERS = [...SAMPLING, ...REASONING];

// A setting that cannot be sent: field is the id of its control.
export class SettingError extends Error {
  constructor(field, message) {
    super(message);
    this.field = field;
  }
}

function parsed(field, name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new SettingError(field, `${name}: ${error.message}`);
  }
}

// The list of tools, of which each may also be written as its function alone.
function toolsOf({ text }) {
  const given = parsed("tools-text", "Tools", text);
  const list = Array.isArray(given) ? given : [given];
  return list.map((tool) =>
    tool && tool.name && !tool.function ? { type: "function", function: tool } : tool,
  );
}

// Answers are held to it in any case; `strict` says so to other servers, for whoever copies it.
function schemaOf({ text }) {
  const schema = parsed("schema-text", "Answer's schema", text);
  return { type: "json_schema", json_schema: { name: "answer", schema, strict: true } };
}

const call = ({ id, name, arguments: given }) => ({
  id,
  type: "function",
  function: { name, arguments: given },
});

function messageOf({ role, content, reasoning, calls, id }) {
  if (role === "tool") return { role, tool_call_id: id, content };
  if (role !== "assistant") return { role, content };
  return {
    role,
    content: content || (calls?.length ? null : ""),
    ...(reasoning && { reasoning_content: reasoning }),
    ...(calls?.length && { tool_calls: calls.map(call) }),
  };
}

const says = ({ role, content, calls }) => role !== "assistant" || content || calls?.length;

// Throws SettingError. What is left empty is not sent, so that the server's own value holds.
export function requestBody(state) {
  let more;
  try {
    more = readParameters({ ...state.parameters, more: state.more }, PARAMETERS);
  } catch (error) {
    throw new SettingError("more", `More: ${error.message}`);
  }
  const stop = state.stop.split("\n").filter(Boolean);
  const system = state.system.trim() ? [{ role: "system", content: state.system }] : [];
  return {
    ...(state.model && { model: state.model }),
    messages: [...system, ...state.messages.filter(says).map(messageOf)],
    ...(stop.length && { stop }),
    ...(state.effort && { reasoning_effort: state.effort }),
    ...(state.tools.on && { tools: toolsOf(state.tools), tool_choice: state.tools.choice }),
    ...(state.schema.on && { response_format: schemaOf(state.schema) }),
    ...(state.schema.on && state.schema.at_once && { thinking_token_budget: 0 }),
    ...(state.logprobs.on && { logprobs: true, top_logprobs: Number(state.logprobs.rivals) || 0 }),
    ...more,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    return_metrics: true,
    return_progress: true,
  };
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// The same request as a command. The key is named, not written.
export function curl(url, body, hasKey) {
  return [
    `curl -N ${quoted(url)}`,
    ...(hasKey ? ['-H "Authorization: Bearer $HEADRACE_API_KEY"'] : []),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n  ");
}
