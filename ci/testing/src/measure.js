// Measures the pages in the frames of this document. Every complaint becomes a line.
"use strict";

const complaints = [];

function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}

// WCAG 2.2, 1.4.3
function contrast(a, b) {
  const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
  return (high + 0.05) / (low + 0.05);
}

const numbers = (colour) => (colour.match(/[\d.]+/g) || []).map(Number);

function background(element) {
  for (let e = element; e; e = e.parentElement) {
    const [r, g, b, alpha = 1] = numbers(getComputedStyle(e).backgroundColor);
    if (alpha === 1) return [r, g, b];
  }
  return [255, 255, 255];
}

const visible = (e) => e.checkVisibility() && e.getClientRects().length > 0 && e.tagName !== "CAPTION";
const name = (e) => `${e.tagName.toLowerCase()}.${e.className} ${e.textContent.trim().slice(0, 40)}`;

function measure(frame) {
  const page = frame.contentDocument;
  const width = page.documentElement.clientWidth;
  const complain = (text) => complaints.push(`${frame.title} ${width}: ${text}`);
  if (page.documentElement.scrollWidth > width) complain(`the page is ${page.documentElement.scrollWidth} wide`);
  const loaded = frame.contentWindow.performance.getEntriesByType("resource");
  if (loaded.length > 0) complain(`it loaded ${loaded.map((entry) => entry.name)}`);
  let texts = 0;
  for (const element of page.body.querySelectorAll("*")) {
    if (!visible(element)) continue;
    const inside = element.parentElement.closest(".scroll, pre");
    if (!inside && element.getBoundingClientRect().right > width + 0.5) complain(`too far right: ${name(element)}`);
    const own = [...element.childNodes].some((n) => n.nodeType === Node.TEXT_NODE && n.data.trim());
    if (!own) continue;
    texts += 1;
    const ratio = contrast(numbers(getComputedStyle(element).color), background(element));
    if (ratio < 4.5) complain(`contrast ${ratio.toFixed(2)}: ${name(element)}`);
  }
  if (texts < 50) complain(`only ${texts} texts were seen`);
  for (const region of page.querySelectorAll(".scroll")) {
    if (!visible(region)) continue;
    region.scrollTo(150, 150);
    const box = region.getBoundingClientRect();
    const head = region.querySelector("thead th").getBoundingClientRect();
    if (Math.abs(head.left - box.left) > 2 || Math.abs(head.top - box.top) > 2) complain(`the head scrolls away: ${name(region)}`);
    const last = [...region.querySelectorAll("tbody th[scope=row]")].at(-1).getBoundingClientRect();
    if (Math.abs(last.left - box.left) > 2) complain(`the first column scrolls away: ${name(region)}`);
  }
}

addEventListener("load", () => {
  const frames = [...document.querySelectorAll("iframe")];
  frames.forEach(measure);
  console.log("measured");
  document.getElementById("result").textContent = `frames ${frames.length}\n${complaints.join("\n")}\nend`;
});
