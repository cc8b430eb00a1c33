// layout.js: opens each page of the site in a frame of each width, light and dark, and says which text nobody can read:
// cut off, beyond the window, too pale, in a picture that is too small. layout.py puts the lists in and reads the end.
const complaints = [];
const frame = document.createElement("iframe");
document.body.append(frame);

// What is asked of an element and of all that it stands in, once per element: cached(e => …, of the parent).
function cached(ask, ofNone) {
  const known = new Map();
  return function of(element) {
    if (!element) return ofNone;
    if (!known.has(element)) known.set(element, ask(element, of));
    return known.get(element);
  };
}

const isHidden = style => style.visibility === "hidden" || style.display === "none" || +style.opacity === 0 ||
  (style.position !== "static" && style.clip !== "auto");

// The texts of the page that are shown, with their elements.
function shown(view) {
  const hidden = cached((e, of) => of(e.parentElement) || isHidden(view.getComputedStyle(e)) ||
    e.matches(".katex-mathml, svg, script, style, noscript, template, iframe, option"), false);
  const walk = view.document.createTreeWalker(view.document.body, NodeFilter.SHOW_TEXT), nodes = [];
  for (let node; (node = walk.nextNode());)
    if (node.data.trim() && !hidden(node.parentElement)) nodes.push(node);
  return nodes;
}

function complainer(where) {
  const said = new Set();
  return (text, what) => {
    if (said.size < 8 && !said.has(what + text)) complaints.push(`${where}: "${text.trim().slice(0, 50)}" ${what}`);
    said.add(what + text);
  };
}

// Does each text end up inside of what cuts it, within the window? What scrolls may hold more than it shows.
function lookAtPlaces(page, width) {
  const view = frame.contentWindow, complain = complainer(`${page} at ${width} px`);
  if (view.document.documentElement.scrollWidth > width + 1) complain("the page", "scrolls sideways");
  const cuts = cached((e, of) => {  // what cuts an element, from the inside
    const style = view.getComputedStyle(e), x = style.overflowX;
    const outside = style.position === "fixed" ? [] : of(e.parentElement);
    const scrolls = ["auto", "scroll"].includes(x) && e.scrollWidth > e.clientWidth;
    return scrolls || ["hidden", "clip"].includes(x) ? [{scrolls, box: e.getBoundingClientRect()}, ...outside] : outside;
  }, []);
  const range = view.document.createRange();
  for (const node of shown(view)) {
    range.selectNodeContents(node);
    for (let {left, right, width: wide, height} of range.getClientRects()) {
      if (wide <= 1 || height <= 1) continue;
      for (const {scrolls, box} of cuts(node.parentElement))
        if (scrolls) left = box.left, right = box.right;
        else if (left < box.left - 1 || right > box.right + 1) complain(node.data, "is cut off");
      if (right <= 0 || left >= view.innerWidth) continue;  // a drawer that is closed
      if (left < -1 || right > view.innerWidth + 1) complain(node.data, "goes beyond the window");
    }
  }
  for (const image of view.document.querySelectorAll("article img")) {
    const size = image.getBoundingClientRect().width / image.naturalWidth;
    if (image.getClientRects().length && size < 0.99) complain(image.alt, `is shown at ${Math.round(100 * size)} %`);
  }
}

const numbers = colour => (colour.match(/[\d.]+/g) || []).map(Number);
function luminance(colour) {
  const [r, g, b] = colour.map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// Does each text stand out from its ground (WCAG 2.1, "contrast ratio"), and a changed line from an unchanged one?
function lookAtColours(page, theme) {
  const view = frame.contentWindow, complain = complainer(`${page}, ${theme}`);
  view.document.body.dataset.theme = theme;
  const ground = cached((e, of) => {
    const colour = numbers(view.getComputedStyle(e).backgroundColor);
    return colour.length === 3 || colour[3] === 1 ? luminance(colour.slice(0, 3)) : of(e.parentElement);
  }, 1);
  const contrast = cached(e => {
    const text = luminance(numbers(view.getComputedStyle(e).color).slice(0, 3));
    return (Math.max(text, ground(e)) + 0.05) / (Math.min(text, ground(e)) + 0.05);
  }, 1);
  for (const node of shown(view))
    if (contrast(node.parentElement) < 3) complain(node.data, `has a contrast of ${contrast(node.parentElement).toFixed(1)}`);
  const [added, same] = ["added", "same"].map(name => view.document.querySelector(`.difference span.${name}`));
  if (added && same && ground(added) === ground(same)) complain("a changed line", "looks like an unchanged one");
}

// Words of a picture lie within it.
function lookAtPictures() {
  for (const [name, text] of Object.entries(pictures)) {
    const holder = document.createElement("div");
    holder.innerHTML = text;
    document.body.append(holder);
    const svg = holder.querySelector("svg"), box = svg.viewBox.baseVal;
    for (const word of svg.querySelectorAll("text")) {
      const r = word.getBBox(), m = svg.getCTM().inverse().multiply(word.getCTM());
      const corners = [[r.x, r.y], [r.x + r.width, r.y + r.height]].map(([x, y]) => new DOMPoint(x, y).matrixTransform(m));
      if (Math.min(...corners.map(c => c.x)) < -1 || Math.max(...corners.map(c => c.x)) > box.width + 1 ||
          Math.min(...corners.map(c => c.y)) < -2 || Math.max(...corners.map(c => c.y)) > box.height + 2)
        complaints.push(`${name}: "${word.textContent.slice(0, 50)}" goes beyond the picture`);
      if (parseFloat(getComputedStyle(word).fontSize) < 10)
        complaints.push(`${name}: "${word.textContent.slice(0, 50)}" is too small`);
    }
    holder.remove();
  }
}

(async () => {
  try {
    lookAtPictures();
    for (const page of pages) {
      await new Promise(done => { frame.onload = done; frame.src = page; });
      for (const details of frame.contentDocument.querySelectorAll("details")) details.open = true;
      for (const width of widths) {
        frame.style.width = width + "px";
        frame.style.height = "900px";
        lookAtPlaces(page, width);
      }
      for (const theme of ["light", "dark"]) lookAtColours(page, theme);
    }
  } catch (error) {
    complaints.push("layout.js: " + error.stack);
  }
  const end = document.createElement("pre");
  end.id = "complaints";
  end.textContent = JSON.stringify(complaints);
  frame.remove();
  document.body.append(end);
})();
