//! Manifests as people write and break them.

use super::*;

const WEB: &str = "apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  ports:
  - port: 80
";

fn ids(parsed: &Parsed) -> Vec<String> {
    let id =
        |(line, o): &(u32, Arc<Object>)| format!("{line} {} {}", o.id().kind.as_str(), o.id().name);
    parsed.objects.iter().map(id).collect()
}

fn broken(text: &str) -> Vec<(u32, String)> {
    let parsed = parse(text.as_bytes());
    parsed
        .broken
        .iter()
        .map(|b| (b.line, b.error.to_string()))
        .collect()
}

#[test]
fn several_documents_comments_and_empty_ones() {
    let text = format!(
        "# head\n---\n---\n{WEB}---\n# only a comment\n--- \n\
         apiVersion: v1\nkind: Node\nmetadata: {{name: n1}}\n...\n"
    );
    let parsed = parse(text.as_bytes());
    assert_eq!(ids(&parsed), ["4 Service shop/web", "14 Node n1"]);
    assert_eq!(parsed.broken, []);
}

#[test]
fn a_document_may_start_on_the_marker_line() {
    let parsed = parse(b"--- {apiVersion: v1, kind: Node, metadata: {name: a}}\n");
    assert_eq!(ids(&parsed), ["1 Node a"]);
}

#[test]
fn three_dashes_inside_a_text_do_not_split() {
    let text = "apiVersion: v1\nkind: Node\nmetadata:\n  name: a\n  annotations:\n    x: |\n      ---\n      y\n";
    assert_eq!(ids(&parse(text.as_bytes())), ["1 Node a"]);
}

#[test]
fn json_with_tabs_and_carriage_returns() {
    let parsed = parse(b"{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Node\",\n\t\"metadata\": {\"name\": \"a\"}\n}");
    assert_eq!(ids(&parsed), ["1 Node a"]);
    let crlf = WEB.replace('\n', "\r\n");
    assert_eq!(ids(&parse(crlf.as_bytes())), ["1 Service shop/web"]);
}

#[test]
fn lists_are_unfolded_with_the_lines_of_their_items() {
    let text = "apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: a}
- apiVersion: v1
  kind: Service
  metadata: {name: b}
  spec: {ports: [{port: eighty}]}
";
    let parsed = parse(text.as_bytes());
    assert_eq!(ids(&parsed), ["4 Node a"]);
    assert_eq!(parsed.broken.len(), 1);
    assert_eq!(parsed.broken[0].line, 7);
    assert_eq!(
        parsed.broken[0].id.as_ref().map(|i| i.name.to_string()),
        Some("default/b".into())
    );
}

#[test]
fn items_of_a_typed_list_need_no_kind() {
    let text =
        "apiVersion: v1\nkind: NodeList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]";
    assert_eq!(ids(&parse(text.as_bytes())), ["3 Node a", "3 Node b"]);
    let json = r#"{"apiVersion":"v1","kind":"List","items":null}"#;
    assert_eq!(parse(json.as_bytes()), Parsed::default());
}

#[test]
fn syntax_errors_name_the_line_in_the_file() {
    let text = format!("{WEB}---\nkind: [unclosed\nmetadata: x\n");
    let parsed = parse(text.as_bytes());
    assert_eq!(
        ids(&parsed),
        ["1 Service shop/web"],
        "the good document is still read"
    );
    assert_eq!(parsed.broken.len(), 1);
    assert!(
        (9..=11).contains(&parsed.broken[0].line),
        "{:?}",
        parsed.broken
    );
    assert_eq!(parsed.broken[0].id, None);
    let json = broken("{\n \"kind\": \"Node\",\n \"x\": ]}\n");
    assert_eq!(json, [(3, "cannot be parsed: expected value".to_owned())]);
}

#[test]
fn a_wrong_field_names_the_object_the_line_and_what_was_expected() {
    let text = WEB.replace("port: 80", "port: eighty");
    let parsed = parse(text.as_bytes());
    assert_eq!(parsed.broken.len(), 1, "{parsed:?}");
    let broken = &parsed.broken[0];
    assert_eq!(broken.line, 7);
    assert_eq!(
        broken.id.as_ref().map(|i| i.name.to_string()),
        Some("shop/web".into())
    );
    let said = broken.error.to_string();
    assert!(
        said.starts_with("Service: ") && !said.contains('\n'),
        "{said}"
    );
}

#[test]
fn what_is_no_object_is_said() {
    assert_eq!(broken("just text"), [(1, ParseError::NoKind.to_string())]);
    assert_eq!(
        broken("\n\napiVersion: v1\nkind: Service\nmetadata: {}\n"),
        [(3, "Service: metadata.name is missing".to_owned())]
    );
    assert_eq!(parse(b"a: b\nc: \xff\n").broken[0].line, 2);
}

#[test]
fn other_kinds_and_versions_are_ignored_by_name() {
    let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, namespace: x}\n---\n\
                apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\nmetadata: {name: s}\n";
    let parsed = parse(text.as_bytes());
    assert_eq!(parsed.objects, []);
    let unused: Vec<_> = parsed
        .unused
        .iter()
        .map(|u| (u.line, u.object.as_str()))
        .collect();
    assert_eq!(unused, [(1, "Deployment/x/d"), (5, "EndpointSlice/s")]);
}

#[test]
fn a_document_that_moved_is_not_parsed_again_and_its_lines_move() {
    let (first, seen) = parse_again(format!("{WEB}---\nkind: 1\n").as_bytes(), &Seen::default());
    let (second, _) = parse_again(format!("#\n---\n{WEB}---\nkind: 1\n").as_bytes(), &seen);
    assert_eq!((first.objects[0].0, first.broken[0].line), (1, 9));
    // The marker line now belongs to the Service's text, which therefore is another one.
    assert_eq!((second.objects[0].0, second.broken[0].line), (3, 11));
    let (third, _) = parse_again(format!("{WEB}---\n{WEB}").as_bytes(), &seen);
    assert!(Arc::ptr_eq(&first.objects[0].1, &third.objects[0].1));
    assert_eq!(
        third.objects.iter().map(|o| o.0).collect::<Vec<_>>(),
        [1, 9]
    );
}

#[test]
fn no_input_makes_the_parser_panic() {
    for cut in 0..WEB.len() {
        parse(&WEB.as_bytes()[..cut]);
    }
    proptest::proptest!(|(bytes: Vec<u8>)| { parse(&bytes); });
    proptest::proptest!(|(text in "[-{}\\[\\]:, \n\ta-c.#\"]{0,60}")| { parse(text.as_bytes()); });
}
