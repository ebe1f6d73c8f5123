// SPDX-License-Identifier: Apache-2.0
//
// Markdown as GitHub shows it: reads [{name, text}] as JSON on standard input, and writes [{name, html, headings}], with
// the anchor of each heading. Raw HTML is kept, so that the caller sees what a text would make of a page.

import {readFileSync} from "node:fs";
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";

// The packages are where hack/test.sh nightly rendered installed them.
const require = createRequire(process.argv[2] + "/");
const load = name => import(pathToFileURL(require.resolve(name)).href);
const {micromark} = await load("micromark");
const {gfm, gfmHtml} = await load("micromark-extension-gfm");
const {default: GithubSlugger} = await load("github-slugger");

const pages = JSON.parse(readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(pages.map(({name, text}) => {
  const html = micromark(text, {allowDangerousHtml: true, extensions: [gfm()], htmlExtensions: [gfmHtml()]});
  const slugger = new GithubSlugger();
  const headings = [...html.matchAll(/<h[1-6]>(.*?)<\/h[1-6]>/gs)].map(([, inner]) => slugger.slug(
    inner.replace(/<[^>]*>/g, "").replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&amp;/g, "&")));
  return {name, html, headings};
})));
