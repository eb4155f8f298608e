// The server's tools as groups for the menu and as fields for a form. Pure functions.

const isOffered = (tool) => tool.family && tool.for_model !== false;

/**
 * What a text asks of the menu, or null when it is a message: `query` behind a "/", and behind a tool's whole name the
 * `words` for it.
 */
export function slashIn(text, tools) {
  const [, query, words] = /^\/([^\s/]*)(?:\s([^]*))?$/.exec(text) ?? [];
  if (query === undefined) return null;
  return words === undefined || tools.some((tool) => isOffered(tool) && tool.name === query) ? { query, words } : null;
}

/** Tools for the menu as `{family, tools}`: the last used one first, as the family `recent`; then in the server's order. With words only the tool that they are for. */
export function toolGroups(tools, { query, words }, label, recent) {
  const wanted = query.toLocaleLowerCase();
  const isWanted = (tool) => (words === undefined ? `${tool.name} ${label(tool)}`.toLocaleLowerCase().includes(wanted) : tool.name === query);
  const matching = tools.filter((tool) => isOffered(tool) && isWanted(tool));
  const others = matching.filter((tool) => tool.name !== recent);
  const families = [...new Set(others.map((tool) => tool.family))];
  const groups = families.map((family) => ({ family, tools: others.filter((tool) => tool.family === family) }));
  const latest = matching.filter((tool) => tool.name === recent);
  return latest.length ? [{ family: "recent", tools: latest }, ...groups] : groups;
}

const TYPED = ["text", "textarea", "number"];

/** The field that words behind a tool's name are for: the first that one can type into. */
export const fieldForWords = (fields) => fields.find(({ kind }) => TYPED.includes(kind))?.name;

const LONG_TEXTS = ["content", "sql"];

/** The schema's properties as form fields `{name, kind, required, options?, min?, max?, step?}`. */
export function fieldsOf(parameters) {
  const required = parameters?.required ?? [];
  return Object.entries(parameters?.properties ?? {}).map(([name, schema]) => {
    const shape = schema.anyOf?.find((option) => option.type !== "null") ?? schema;
    return { name, required: required.includes(name), ...controlOf(name, shape, required.includes(name)) };
  });
}

function controlOf(name, shape, required) {
  const { type, enum: options, minimum: min, maximum: max } = shape;
  if (options) return { kind: "select", options };
  // An empty box can't say "leave it as it is", so an optional one has three choices.
  if (type === "boolean") return required ? { kind: "checkbox" } : { kind: "select", options: [true, false] };
  if (type === "integer" || type === "number") return { kind: "number", min, max, step: type === "integer" ? 1 : "any" };
  return { kind: LONG_TEXTS.includes(name) ? "textarea" : "text" };
}

/** The arguments that a form's controls hold; an empty one is left out. */
export function readFields(elements, fields) {
  const values = fields.map(({ name, kind, options }) => {
    const { value, checked, valueAsNumber } = elements[name];
    if (kind === "checkbox") return [name, checked];
    if (value === "") return [name, undefined];
    if (kind === "select") return [name, options.find((option) => String(option) === value)];
    return [name, kind === "number" ? valueAsNumber : value];
  });
  return Object.fromEntries(values.filter(([, value]) => value !== undefined));
}
