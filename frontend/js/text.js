// Measures and takes apart text: bytes, code points, characters that can't be seen. Knows no DOM.

const encoder = new TextEncoder();

export const byteLength = (text) => encoder.encode(text).length;

/** Length in Unicode code points, the unit of the wire's offsets. */
export function codePointLength(text) {
  let length = text.length;
  for (let i = 0; i < text.length - 1; i++) {
    if (isHighSurrogate(text.charCodeAt(i)) && isLowSurrogate(text.charCodeAt(i + 1))) {
      length--;
      i++;
    }
  }
  return length;
}

/** The text without its first `count` code points. */
export function dropCodePoints(text, count) {
  let index = 0;
  for (let left = count; left > 0 && index < text.length; left--) {
    index += text.codePointAt(index) > 0xffff ? 2 : 1;
  }
  return text.slice(index);
}

const isHighSurrogate = (unit) => unit >= 0xd800 && unit <= 0xdbff;
const isLowSurrogate = (unit) => unit >= 0xdc00 && unit <= 0xdfff;

// Format characters (zero width, bidi, tags), variation selectors, fillers that draw nothing, and control
// characters other than tab and line feed.
const UNSEEN = /[\p{Cf}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\ufe00-\ufe0f\u{e0000}-\u{e0fff}\u0000-\u0008\u000b-\u001f\u007f-\u009f\u2028\u2029]/gu;

// Joiners and selectors inside an emoji are how it is written, not something hidden.
const EMOJI = /\p{Emoji}\ufe0f?(?:\u20e3|[\u{1f3fb}-\u{1f3ff}])?(?:\u200d\p{Emoji}\ufe0f?[\u{1f3fb}-\u{1f3ff}]?)*/gu;

/** Split into `{text}` as it is and `{text, code}` for each character that would not be seen. */
export function revealUnseen(text) {
  const segments = [];
  let start = 0;
  for (const match of text.matchAll(UNSEEN)) {
    if (insideEmoji(text, match.index)) continue;
    if (match.index > start) segments.push({ text: text.slice(start, match.index) });
    segments.push({ text: match[0], code: codeOf(match[0]) });
    start = match.index + match[0].length;
  }
  if (start < text.length) segments.push({ text: text.slice(start) });
  return segments;
}

function insideEmoji(text, index) {
  // The longest emoji in use have about 20 code units, so a look back over 24 finds where it began.
  const from = Math.max(0, index - 24);
  for (const match of text.slice(from, index + 24).matchAll(EMOJI)) {
    const begin = from + match.index;
    if (/\p{Extended_Pictographic}|\u20e3/u.test(match[0]) && begin < index && index < begin + match[0].length) return true;
  }
  return false;
}

const codeOf = (character) => `U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
