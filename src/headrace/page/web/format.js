// Numbers and times as people read them. An unknown value is a dash, never 0.

export const LOCALE = "en-US";
export const NONE = "–";
const whole = new Intl.NumberFormat(LOCALE);
const short = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumSignificantDigits: 3 });
export const known = (value) => value !== null && value !== undefined && !Number.isNaN(value);

export const count = (value) => (known(value) ? whole.format(value) : NONE);
export const compact = (value) =>
  known(value) ? (Math.abs(value) < 10000 ? whole.format(value) : short.format(value)) : NONE;

export function percent(part, all) {
  if (!all) return NONE;
  const share = (100 * part) / all;
  return `${share.toLocaleString(LOCALE, { maximumFractionDigits: share < 10 ? 1 : 0 })} %`;
}

export function ms(value) {
  if (!known(value)) return NONE;
  if (value === 0) return "0 ms";
  if (value < 10) return `${value.toFixed(1)} ms`;
  if (value < 1000) return `${Math.round(value)} ms`;
  if (value < 60000) return `${(value / 1000).toFixed(value < 10000 ? 2 : 1)} s`;
  return `${Math.floor(value / 60000)} min ${Math.round((value % 60000) / 1000)} s`;
}
export const seconds = (value) => (known(value) ? ms(1000 * value) : NONE);

export function tokensPerSecond(tokens, first, total) {
  const lasted = total - first;
  return known(tokens) && known(first) && known(total) && lasted > 5
    ? `${((1000 * tokens) / lasted).toFixed(0)} tokens/s`
    : NONE;
}
