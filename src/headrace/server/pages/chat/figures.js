// What an answer takes: by this page's clock while it arrives, by the server's once it is there.

import { count, known, ms, NONE, percent } from "./shared/format.js";

const SAMPLES = {
  limit: "headrace:read_limit_bytes_per_second",
  bytes: "headrace:step_bytes_total",
  seconds: "headrace:step_seconds_sum",
};

// Of the text of /metrics; a name that is not there is undefined.
export function engineCounts(text) {
  const found = {};
  for (const line of text.split("\n"))
    for (const [field, name] of Object.entries(SAMPLES))
      if (line.startsWith(name) && /^[ {]/.test(line.slice(name.length)))
        found[field] = (found[field] || 0) + Number(line.slice(line.lastIndexOf(" ")));
  return found;
}

// MBU = bytes moved by steps / seconds within steps / bytes per second that this machine reads
export function mbu(before, after) {
  const seconds = after.seconds - before.seconds;
  return after.limit && seconds > 0
    ? (after.bytes - before.bytes) / seconds / after.limit
    : undefined;
}

export class Stopwatch {
  constructor(now_ms) {
    this.started_ms = now_ms;
    this.usage = {};
  }

  // An event of the stream; hasToken: whether it has a part of the answer.
  take(chunk, hasToken, now_ms) {
    if (chunk.usage) this.usage = chunk.usage;
    if (!hasToken) return;
    this.first_ms ??= now_ms;
    this.last_ms = now_ms;
  }

  // metrics: of the server, in the last event of an answer that ended by itself.
  figures(metrics) {
    const tokens = this.usage.completion_tokens;
    const lasted_ms = this.last_ms - this.first_ms;
    const rate = tokens > 1 && lasted_ms > 5 ? (1000 * (tokens - 1)) / lasted_ms : undefined;
    return {
      tokens,
      rate: metrics?.output_tokens_per_s ?? rate,
      ttft_ms: known(metrics?.ttft_s) ? 1000 * metrics.ttft_s : this.first_ms - this.started_ms,
      queue_ms: known(metrics?.queue_s) ? 1000 * metrics.queue_s : undefined,
      prompt: this.usage.prompt_tokens,
      cached: this.usage.prompt_tokens_details?.cached_tokens,
      thoughts: this.usage.completion_tokens_details?.reasoning_tokens,
      miss: metrics?.cache_miss,
      drafted: metrics?.draft_tokens,
      accepted: metrics?.accepted_draft_tokens,
    };
  }
}

// Of each figure: name, value, an explanation, and the characters that its value may take. Those that
// are not known are omitted, or, while the answer arrives, a dash where they will be. measured:
// whether MBU will be known.
export function shown(figures, { arriving = false, measured = false } = {}) {
  const { tokens, rate, ttft_ms, queue_ms, prompt, cached, thoughts, mbu: share, miss } = figures;
  const { drafted, accepted } = figures;
  const cachedTitle = `Prompt tokens found in the prefix cache${miss ? `; no more because: ${miss}` : ""}`;
  const pairs = [
    [
      "Tokens/s",
      known(rate) && rate.toFixed(rate < 10 ? 1 : 0),
      "Tokens after the first, by the second",
      5,
    ],
    [
      "TTFT",
      known(ttft_ms) && ms(ttft_ms),
      `Time to the first token${known(queue_ms) ? `, ${ms(queue_ms)} of it waiting` : ""}`,
      7,
    ],
    ["Output", known(tokens) && count(tokens), "Tokens of the answer", 5],
    ["Prompt", known(prompt) && count(prompt), "Tokens of the prompt", 5],
    [
      "Cached",
      known(cached) && known(prompt) && `${count(cached)} (${percent(cached, prompt)})`,
      cachedTitle,
      11,
    ],
    [
      "MBU",
      known(share) && percent(share, 1),
      "Memory bandwidth utilization of the engine's steps meanwhile, of what this machine reads at most",
      5,
    ],
    [
      "Drafts",
      drafted > 0 && `${count(accepted)} of ${count(drafted)}`,
      "Guessed tokens that came, of those that were guessed: each spared a step of its own",
      9,
    ],
    ["Thoughts", thoughts > 0 && count(thoughts), "Tokens of reasoning, part of the output", 4],
  ];
  const awaited = (name) =>
    arriving && name !== "Thoughts" && name !== "Drafts" && (name !== "MBU" || measured);
  return pairs
    .filter(([name, value]) => value || awaited(name))
    .map(([name, value, ...rest]) => [name, value || NONE, ...rest]);
}
