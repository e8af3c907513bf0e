// Without a server a page cannot read another, so that search results come without excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;

// From a server a notebook is downloaded; from a file, browsers may show its text, in a page of its own.
document.addEventListener("DOMContentLoaded", () => {
  for (const link of document.querySelectorAll(".btn-download-notebook")) { link.download = ""; link.ariaLabel = link.title; }
});
