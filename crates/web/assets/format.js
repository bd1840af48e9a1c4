// Numbers for people, in the style of the program's tables (crates/text/src/units.rs).

const PREFIXES = {
  plain: [[1, ""]],
  count: [
    [1, ""],
    [1e3, " k"],
    [1e6, " M"],
    [1e9, " G"],
  ],
  micros: [
    [1, " µs"],
    [1e3, " ms"],
    [1e6, " s"],
  ],
  bytes: [
    [1, " B"],
    [1e3, " kB"],
    [1e6, " MB"],
    [1e9, " GB"],
    [1e12, " TB"],
  ],
  pps: [
    [1, " pps"],
    [1e3, " kpps"],
    [1e6, " Mpps"],
    [1e9, " Gpps"],
  ],
  bps: [
    [1, " bit/s"],
    [1e3, " kbit/s"],
    [1e6, " Mbit/s"],
    [1e9, " Gbit/s"],
    [1e12, " Tbit/s"],
  ],
};

function rounded(value) {
  if (value === 0) return 0;
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - 2);
  return Math.round(value / step) * step;
}

function threeDigits(value) {
  const size = Math.abs(rounded(value));
  if (size === 0) return "0";
  if (size >= 100) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  if (size >= 1) return value.toFixed(2);
  return value.toFixed(Math.min(6, 2 - Math.floor(Math.log10(size))));
}

/** Three digits and a unit: `1.24 Gbit/s`. An en dash for what is not known; of the slowest rates, one decimal. */
export function format(unit, value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(rounded(value));
  const [factor, name] = PREFIXES[unit].findLast(([from]) => size >= from) ?? PREFIXES[unit][0];
  if (factor === 1 && size < 10 && unit.endsWith("ps")) return (size < 0.05 ? "0" : value.toFixed(1)) + name;
  return threeDigits(value / factor) + name;
}

/** The same without trailing zeros, for axes. */
export function formatTick(unit, value) {
  const [number, name] = format(unit, value).split(/ (.*)/);
  const short = number.includes(".") ? number.replace(/\.?0+$/, "") : number;
  return name ? `${short} ${name}` : short;
}

export const bitRate = (value) => format("bps", value);
export const packetRate = (value) => format("pps", value);

/** A whole number with commas: `1,234,567`. */
export function count(number) {
  if (number === null || number === undefined) return "–";
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, ",");
}

export function counted(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function bytes(number) {
  return number < 1000 ? `${number} B` : format("bytes", number);
}

/** A time in microseconds. */
export function micros(value) {
  return value > 0 && value < 1 ? `${Math.round(value * 1000)} ns` : format("micros", value);
}

const two = (number) => String(number).padStart(2, "0");

/** An age, its two largest units: `2m 05s`, `3d 4h`. */
export function age(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (d) return `${count(d)}d ${h}h`;
  if (h) return `${h}h ${two(m)}m`;
  if (m) return `${m}m ${two(Math.floor(seconds % 60))}s`;
  return `${Math.floor(seconds)}s`;
}

export function share(part, whole) {
  return whole === 0 ? "–" : `${((part * 100) / whole).toFixed(1)}%`;
}

/** The clock at a moment (seconds since the epoch), with the date if steps are long. */
export function clock(seconds, step = 1) {
  const at = new Date(seconds * 1000);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}`;
  if (step < 60) return `${time}:${two(at.getSeconds())}`;
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  if (step >= 86400) return day;
  return step >= 3600 && at.getHours() === 0 ? `${day} ${time}` : time;
}

/** The reader's time zone, for axes: `UTC+01:00`. */
export function zone() {
  const minutes = -new Date().getTimezoneOffset();
  if (minutes === 0) return "UTC";
  const size = Math.abs(minutes);
  return `UTC${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

/** `treated_as_withdraw` as words. */
export const words = (name) => name.replaceAll("_", " ");
