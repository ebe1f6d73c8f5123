// SPDX-License-Identifier: Apache-2.0
// The page is whole without this: it adds buttons that copy commands, and fields that filter long tables.
(() => {
  "use strict";
  const make = (name, attributes, text) => {
    const e = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    e.textContent = text;
    return e;
  };
  const said = make("p", {class: "unseen", role: "status"}, "");
  document.querySelector("footer").append(said);

  for (const pre of document.querySelectorAll(".command > pre")) {
    const button = make("button", {type: "button", class: "copy"}, "Copy");
    button.setAttribute("aria-label", "Copy: " + pre.textContent);
    button.addEventListener("click", async () => {
      let copied = true;
      try {
        await navigator.clipboard.writeText(pre.textContent);
      } catch {
        getSelection().selectAllChildren(pre); // to be copied by hand, where the browser does not let a page do it
        copied = document.execCommand("copy");
      }
      button.textContent = copied ? "Copied" : "Selected";
      said.textContent = button.textContent;
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
    pre.after(button);
  }

  let count = 0;
  for (const table of document.querySelectorAll("table.many")) {
    const rows = [...table.tBodies[0].rows], id = "filter-" + ++count;
    const box = make("div", {class: "filter"}, "");
    const input = make("input", {type: "search", id, autocomplete: "off"}, "");
    const shown = make("span", {class: "faint", role: "status"}, "");
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/);
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((w) => text.includes(w));
      }
      shown.textContent = rows.filter((row) => !row.hidden).length + " of " + rows.length + " rows";
    });
    box.append(make("label", {for: id}, "Filter these rows"), input, shown);
    table.before(box);
  }
})();
