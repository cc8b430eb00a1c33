// katex.js: sets the mathematics of a page when it has been read. KaTeX itself comes from Debian (build.py copies it).
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll("span.math")) renderMathInElement(element);
});
