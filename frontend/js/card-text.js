// A card as plain text, for keeping it where text is kept. Pure functions.

/** What a card shows, without its title and buttons; empty when it shows nothing. */
export function cardText(card) {
  switch (card.kind) {
    case "diff":
      return card.after ?? "";
    case "list":
      return card.items.map(itemText).join("\n");
    case "table":
      return tableText(card);
    default:
      return card.body ?? "";
  }
}

function itemText({ text, done }) {
  const mark = done === undefined ? "" : done ? "[x] " : "[ ] ";
  return `- ${mark}${text}`;
}

/** A Markdown table, which reads well as plain text too. */
function tableText({ columns, rows }) {
  const row = (cells) => `| ${cells.map(cellText).join(" | ")} |`;
  return [row(columns), row(columns.map(() => "---")), ...rows.map(row)].join("\n");
}

function cellText(value) {
  if (value === null || value === undefined) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  return text.replaceAll("|", "\\|").replace(/\s*\n\s*/g, " ");
}
