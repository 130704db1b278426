//! The little of XML that recorders describe a file with: elements, attributes, text.
//!
//! Not a validator: comments, declarations and instructions are skipped, names are taken as they come, and of the
//! entities only the predefined ones and numbers are known. What is not well-formed is an error, and no text makes it take
//! more memory than a small multiple of itself, or go deeper than [`DEPTH`].

/// Elements inside elements, at most.
const DEPTH: usize = 64;

/// Elements and attributes, at most: each takes many times the memory of the few bytes that it may be.
const MOST: usize = 1 << 16;

/// An element.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Element {
    pub tag: String,
    pub attributes: Vec<(String, String)>,
    pub children: Vec<Element>,
    /// The text directly in it.
    pub text: String,
}

impl Element {
    /// An attribute's value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The first element of that tag and `name` attribute: this one or one inside, depth first.
    pub fn find(&self, tag: &str, name: &str) -> Option<&Element> {
        if self.tag == tag && self.get("name") == Some(name) {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(tag, name))
    }
}

/// The element that a text consists of.
///
/// # Errors
/// What is not well-formed, in words.
pub fn parse(text: &str) -> Result<Element, String> {
    let mut rest = text.trim_start_matches('\u{feff}');
    // Elements that are open; what is at the bottom holds the whole.
    let mut open = vec![Element::default()];
    let mut left = MOST;
    loop {
        let inside = open.len() > 1;
        let Some(start) = rest.find('<') else {
            let left = if inside { "an element is not closed" } else { "" };
            return match (
                left,
                rest.trim().is_empty() || inside,
                open.pop().and_then(|mut all| all.children.pop()),
            ) {
                ("", true, Some(element)) => Ok(element),
                ("", false, _) => Err("there is text outside of the elements".into()),
                ("", true, None) => Err("there is no element".into()),
                (left, ..) => Err(left.into()),
            };
        };
        let (before, tag) = rest.split_at(start);
        if inside {
            let text = unescape(before)?;
            open.last_mut().unwrap().text.push_str(&text);
        } else if !before.trim().is_empty() {
            return Err("there is text outside of the elements".into());
        }
        rest = if let Some(comment) = tag.strip_prefix("<!--") {
            behind(comment, "-->")?.1
        } else if let Some(data) = tag.strip_prefix("<![CDATA[") {
            let (data, rest) = behind(data, "]]>")?;
            open.last_mut().unwrap().text.push_str(data);
            rest
        } else if let Some(instruction) = tag.strip_prefix("<?") {
            behind(instruction, "?>")?.1
        } else if tag.starts_with("<!") {
            // Definitions of entities would be here: a text that needs them is none of a recorder.
            return Err("document types are not supported".into());
        } else if let Some(closing) = tag.strip_prefix("</") {
            let (name, rest) = behind(closing, ">")?;
            if !inside || open.last().unwrap().tag != name.trim_ascii_end() {
                return Err(format!("</{}> closes nothing", short(name)));
            }
            let element = open.pop().unwrap();
            open.last_mut().unwrap().children.push(element);
            rest
        } else {
            let (element, closed, rest) = element(&tag[1..], &mut left)?;
            if !inside && !open[0].children.is_empty() {
                return Err("there are two outermost elements".into());
            }
            if closed {
                open.last_mut().unwrap().children.push(element);
            } else if open.len() > DEPTH {
                return Err(format!("elements are nested more than {DEPTH} deep"));
            } else {
                open.push(element);
            }
            rest
        };
    }
}

/// An element's tag from behind its `<`: the element, whether it is closed by itself, and what follows. It and its
/// attributes are taken off the number that may come.
fn element<'a>(text: &'a str, left: &mut usize) -> Result<(Element, bool, &'a str), String> {
    let name = |text: &str| {
        text.find(|c: char| c.is_ascii_whitespace() || "<>/='\"".contains(c)).unwrap_or(text.len())
    };
    let (tag, mut rest) = text.split_at(name(text));
    if tag.is_empty() {
        return Err("a < is not followed by a name".into());
    }
    let mut element = Element { tag: tag.into(), ..Element::default() };
    loop {
        *left = left
            .checked_sub(1)
            .ok_or_else(|| format!("there are more than {MOST} elements and attributes"))?;
        rest = rest.trim_ascii_start();
        if let Some(rest) = rest.strip_prefix('>') {
            return Ok((element, false, rest));
        }
        if let Some(rest) = rest.strip_prefix("/>") {
            return Ok((element, true, rest));
        }
        let (key, behind_key) = rest.split_at(name(rest));
        let value = behind_key.trim_ascii_start().strip_prefix('=').map(str::trim_ascii_start);
        let quote =
            value.and_then(|value| value.chars().next()).filter(|&quote| quote == '"' || quote == '\'');
        let (Some(value), Some(quote), false) = (value, quote, key.is_empty()) else {
            return Err(format!("<{}> has an attribute that is not name=\"value\"", short(tag)));
        };
        let (value, behind_value) = behind(&value[1..], quote.encode_utf8(&mut [0; 4]))?;
        element.attributes.push((key.into(), unescape(value)?));
        rest = behind_value;
    }
}

/// What is before and behind the first `end`.
fn behind<'a>(text: &'a str, end: &str) -> Result<(&'a str, &'a str), String> {
    text.split_once(end).ok_or_else(|| format!("{end} is missing"))
}

/// A text with its entities replaced.
fn unescape(text: &str) -> Result<String, String> {
    let mut parts = text.split('&');
    let mut out = String::from(parts.next().unwrap_or(""));
    for part in parts {
        let (entity, rest) = part.split_once(';').ok_or("an & is not followed by a name and a ;")?;
        let number = entity.strip_prefix('#').and_then(|number| match number.strip_prefix('x') {
            Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
            None => number.parse().ok(),
        });
        let known = match entity {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => number.and_then(char::from_u32),
        };
        out.push(known.ok_or_else(|| format!("the entity &{}; is not known", short(entity)))?);
        out.push_str(rest);
    }
    Ok(out)
}

fn short(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_attributes_and_text() {
        let text = "\u{feff}<?xml version='1.0'?><!-- <a> -->\n<a one='1 &gt; 0' two = \"it's\"\n><b/>x&#65;&#x42;<![CDATA[<&]]>\
                    <b name=\"n\">deep</b ></a> <!-- the end -->\n";
        let a = parse(text).unwrap();
        assert_eq!((a.tag.as_str(), a.get("one"), a.get("two")), ("a", Some("1 > 0"), Some("it's")));
        assert_eq!(a.text, "xAB<&");
        assert_eq!(a.children.len(), 2);
        assert_eq!(a.find("b", "n").unwrap().text, "deep");
        assert_eq!(a.find("b", "m"), None);
    }

    #[test]
    fn what_is_not_well_formed() {
        for bad in [
            "",
            "x",
            "<",
            "<a",
            "<a>",
            "</a>",
            "<a></b>",
            "<a/><b/>",
            "<a/>x",
            "<a b></a>",
            "<a b=c/>",
            "<a b='/>",
            "<a>&b;</a>",
            "<a>&amp</a>",
            "<a>&#xd800;</a>",
            "<a>&#x110000;</a>",
            "<!DOCTYPE a><a/>",
            "<a><!-- </a>",
            "< a/>",
            "<a =''/>",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |n: usize| "<a>".repeat(n) + &"</a>".repeat(n);
        assert!(parse(&nested(DEPTH)).is_ok());
        assert!(parse(&nested(DEPTH + 1)).unwrap_err().contains("deep"));
        assert!(parse(&"<a>".repeat(1_000_000)).is_err());
    }

    #[test]
    fn elements_and_attributes_are_counted() {
        let nested = |n: usize| format!("<a>{}</a>", "<b/>".repeat(n));
        assert_eq!(parse(&nested(MOST - 1)).unwrap().children.len(), MOST - 1);
        let attributes = format!("<a {}/>", "b='' ".repeat(MOST));
        for bad in [nested(MOST), attributes] {
            assert!(parse(&bad).unwrap_err().contains("more than 65536 elements"));
        }
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text in r#"([<>/='"&;!?\[\]\-]|<a|</a>|<b c='d'/>|&lt;|é|[ \n])*"#) {
            let _ = parse(&text);
        }
    }
}
