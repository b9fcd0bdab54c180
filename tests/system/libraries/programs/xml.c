/* SPDX-License-Identifier: MIT */
/* libxml2: its settings and handlers of the process, a parser whose callbacks meet others, paths and schemas. */
#include <libxml/parser.h>
#include <libxml/relaxng.h>
#include <libxml/xpath.h>
#include <libxml/xpathInternals.h>
#include <string.h>

#include "stress.h"

static int told, elements;

static void tell(void* unused, const char* text, ...) {
  (void)unused, (void)text;
  ++told;
}
static void start(void* unused, const xmlChar* name, const xmlChar** attributes) {
  (void)unused, (void)attributes;
  check(strcmp((const char*)name, "e") == 0 || strcmp((const char*)name, "all") == 0, "an element");
  meet(elements++);
}
static void twice(xmlXPathParserContextPtr context, int count) {
  (void)count;
  const double number = xmlXPathPopNumber(context);
  meet(2);
  xmlXPathReturnNumber(context, 2 * number);
}

static int schema_accepts(xmlDocPtr document) {
  const char text[] =
      "<element name='all' xmlns='http://relaxng.org/ns/structure/1.0'><oneOrMore><element name='e'>"
      "<attribute name='a'/><text/></element></oneOrMore></element>";
  xmlRelaxNGParserCtxtPtr parser = xmlRelaxNGNewMemParserCtxt(text, sizeof text - 1);
  xmlRelaxNGPtr schema = xmlRelaxNGParse(parser);
  xmlRelaxNGValidCtxtPtr judge = xmlRelaxNGNewValidCtxt(schema);
  const int status = xmlRelaxNGValidateDoc(judge, document);
  xmlRelaxNGFreeValidCtxt(judge);
  xmlRelaxNGFree(schema);
  xmlRelaxNGFreeParserCtxt(parser);
  return status == 0;
}

int main(int argc, char** argv) {
  begin(&argc, &argv);
  xmlSetGenericErrorFunc(NULL, tell);
  for (int round = 0; round < 20; ++round) {
    char text[1000];
    const int one = rank + 1;
    snprintf(text, sizeof text,
             "<all><e a='1'>%d</e><e a='2'>%d</e><e a='3'>%d</e><e a='4'>%d</e><e a='5'>%d</e></all>", one, 2 * one,
             3 * one, 4 * one, 5 * one);
    const int size = (int)strlen(text);
    xmlSAXHandler handler = {.startElement = start};
    elements = told = 0;
    check(xmlSAXUserParseMemory(&handler, NULL, text, size) == 0 && elements == 6, "a parser");
    xmlDocPtr document = xmlReadMemory(text, size, "a.xml", NULL, 0);
    xmlXPathContextPtr context = xmlXPathNewContext(document);
    xmlXPathRegisterFunc(context, BAD_CAST "twice", twice);
    xmlXPathObjectPtr found = xmlXPathEvalExpression(BAD_CAST "twice(sum(//e[@a > 2]))", context);
    check(found != NULL && found->floatval == 24.0 * (rank + 1), "a path");
    check(schema_accepts(document) && told == 0, "a schema");
    xmlXPathFreeObject(found);
    xmlXPathFreeContext(context);
    xmlFreeDoc(document);
    check(xmlReadMemory(text, size - 3, "b.xml", NULL, 0) == NULL && told > 0, "a broken document");
    meet(round);
    if (round % 10 == 9) xmlCleanupParser();
    xmlInitParser();
    xmlSetGenericErrorFunc(NULL, tell);
  }
  return end();
}
