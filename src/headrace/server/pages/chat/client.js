// The server's API. Addresses are relative, so that they hold below a proxy's own path, too.

import { ApiError, errorIn, errorOf } from "./shared/api_error.js";
import { eventData } from "./shared/event_stream.js";
import { key } from "./store.js";

export const CHAT = "v1/chat/completions";

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server cannot be reached.", { code: "unreachable" });
  }
  if (!response.ok) throw await errorOf(response);
  return response;
}

export const models = async () => (await (await send("v1/models")).json()).data;
export const metrics = async () => (await send("metrics")).text();

// The chunks of a streamed answer. Throws ApiError for a refusal and for an error within the
// stream. onData gets each event's data as it was sent.
export async function* chat(body, signal, onData) {
  const response = await send(CHAT, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  let done = false;
  for await (const data of eventData(response)) {
    onData(data);
    if (data === "[DONE]") {
      done = true;
      continue;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw errorIn(response.status, chunk);
    yield chunk;
  }
  if (!done) throw new ApiError(0, "The connection ended before the answer did.", { code: "cut" });
}
