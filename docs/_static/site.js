// Without a server a page cannot read another, so that search results come without excerpts.
if (location.protocol === "file:") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
