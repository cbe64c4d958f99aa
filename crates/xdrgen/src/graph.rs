//! Relations of types that hold types: sizes without end, linked lists, recursion, and derived traits.
//!
//! All walks are loops over lists, since a description may have a long chain of types.

use crate::error::Fault;
use crate::model::{Base, Eligible, Item, Kind, Program, Shape, Size, Traits, TypeDef, TypeId};
use crate::resolve::{Aliases, FIXED_MAX};

/// Checks that each size ends: a type may hold itself only as an option, in an array or in a list. Checks that the size
/// of what a value holds in place is within limits, and not 0 for the elements of an array.
pub(crate) fn check_ends(types: &[TypeDef]) -> Result<(), Fault> {
    let is_direct = |item: &&Item| matches!(item.shape, Shape::One | Shape::Fixed(_));
    let edges = edges(types, |def| def.kind.items().into_iter().filter(is_direct).collect());
    let mut sizes = vec![0usize; types.len()];
    for circle in circles(&edges) {
        let members = circle.iter().filter_map(|id| types.get(*id));
        let first = members.min_by_key(|def| def.at);
        if let ([id, ..], Some(def)) = (&*circle, first)
            && (circle.len() > 1 || holds(&edges, *id, *id))
        {
            let reason = format!(
                "`{}` holds itself in place, so its size has no end: it must do so by `*` or `<>`",
                def.path
            );
            return Err(Fault::new(def.at, reason));
        }
        for id in circle {
            let Some(def) = types.get(id) else { continue };
            let size = |item: &Item| in_place(item, &sizes);
            let total = match &def.kind {
                Kind::Enum(_) => 4,
                Kind::Alias(item) | Kind::Maybe(item) => size(item),
                Kind::Struct(items) => items.iter().map(size).fold(0, usize::saturating_add),
                Kind::Union(_) => def.kind.items().into_iter().map(size).max().unwrap_or(0).saturating_add(4),
            };
            if total > FIXED_MAX {
                let reason = format!(
                    "`{}` holds {total} bytes in members and arrays of fixed length; at most {FIXED_MAX} are allowed",
                    def.path
                );
                return Err(Fault::new(def.at, reason));
            }
            if let Some(place) = sizes.get_mut(id) {
                *place = total;
            }
        }
    }
    // A count could announce four thousand million elements in four bytes.
    let is_nothing = |item: &&Item| {
        matches!(item.shape, Shape::Counted(_))
            && matches!(item.base, Base::Type(id) if sizes.get(id) == Some(&0))
    };
    match types.iter().flat_map(|def| def.kind.items()).find(is_nothing) {
        Some(item) => {
            let reason =
                format!("the elements of `{}` take no bytes, so nothing would limit their number", item.path);
            Err(Fault::new(item.at, reason))
        }
        None => Ok(()),
    }
}

/// Returns the bytes that an item takes in place, more or less.
fn in_place(item: &Item, sizes: &[usize]) -> usize {
    let one = match &item.base {
        Base::Int | Base::Unsigned | Base::Float | Base::Bool => 4,
        Base::Hyper | Base::UnsignedHyper | Base::Double => 8,
        Base::Opaque => 1,
        Base::String | Base::External(_) => 8,
        Base::Type(id) => sizes.get(*id).copied().unwrap_or(0),
    };
    match &item.shape {
        Shape::One => one,
        Shape::Fixed(size) => one.saturating_mul(usize::try_from(size.number).unwrap_or(usize::MAX)),
        Shape::Counted(_) | Shape::Optional | Shape::List(_) => 4,
    }
}

/// Turns chains of optional data into lists (RFC 4506 §4.19). An element is a structure whose last member leads to the
/// next one, and nothing holds it otherwise than as an option. The structure loses that member.
pub(crate) fn find_lists(types: &mut [TypeDef], programs: &[Program], aliases: &Aliases) {
    let mut uses = vec![(false, false); types.len()];
    let procedures =
        programs.iter().flat_map(|program| &program.versions).flat_map(|version| &version.procedures);
    let parameters = procedures.flat_map(|procedure| procedure.arguments.iter().chain(&procedure.results));
    let discriminants = types.iter().filter_map(|def| match &def.kind {
        Kind::Union(union) => Some(&union.discriminant),
        _ => None,
    });
    let members = types.iter().enumerate().flat_map(|(id, def)| {
        let maybe = matches!(def.kind, Kind::Maybe(_));
        let tail = tail(id, types, aliases).filter(|tail| tail.shape == Shape::Optional);
        def.kind
            .items()
            .into_iter()
            .filter(move |item| !tail.is_some_and(|tail| std::ptr::eq(tail, *item)))
            .map(move |item| (item, maybe))
    });
    let others = parameters.chain(discriminants).map(|item| (item, false));
    for (item, maybe) in members.chain(others) {
        if let Base::Type(id) = item.base
            && let Some((as_list, otherwise)) = uses.get_mut(id)
        {
            if item.shape == Shape::Optional && !maybe {
                *as_list = true;
            } else {
                *otherwise = true;
            }
        }
    }
    let is_list: Vec<bool> = uses
        .iter()
        .enumerate()
        .map(|(id, used)| *used == (true, false) && tail(id, types, aliases).is_some())
        .collect();
    for (def, is_list) in types.iter_mut().zip(&is_list) {
        if *is_list && let Kind::Struct(items) = &mut def.kind {
            items.pop();
        }
    }
    for item in types.iter_mut().flat_map(|def| def.kind.items_mut()) {
        if item.shape == Shape::Optional
            && let Base::Type(id) = item.base
            && is_list.get(id).is_some_and(|is_list| *is_list)
        {
            item.shape = Shape::List(None);
        }
    }
}

/// Returns the last member of a structure if it leads to the next one. It is then the only pointer to the structure's own
/// type, or its name says so.
fn tail<'t>(id: TypeId, types: &'t [TypeDef], aliases: &Aliases) -> Option<&'t Item> {
    let Kind::Struct(items) = &types.get(id)?.kind else { return None };
    let (last, others) = items.split_last()?;
    let leads_on = |item: &Item| {
        let target = aliases.through(item, types);
        target.shape == Shape::Optional && target.base == Base::Type(id)
    };
    let is_next = last.name.to_ascii_lowercase().contains("next");
    (leads_on(last) && (is_next || !others.iter().any(leads_on))).then_some(last)
}

/// Checks that no typedefs name each other in a circle: a type of Rust must stand between them.
pub(crate) fn check_aliases(types: &[TypeDef]) -> Result<(), Fault> {
    let edges = edges(types, |def| if def.kind.is_alias() { def.kind.items() } else { Vec::new() });
    let first = |circle: Vec<TypeId>| match &*circle {
        [id] if !holds(&edges, *id, *id) => None,
        _ => circle.iter().filter_map(|id| types.get(*id)).min_by_key(|def| def.at),
    };
    match circles(&edges).into_iter().find_map(first) {
        Some(def) => {
            let reason =
                format!("`{}` names itself and holds nothing else: a structure must stand between", def.path);
            Err(Fault::new(def.at, reason))
        }
        None => Ok(()),
    }
}

/// Finds the types that hold themselves, and the traits that each type can have.
pub(crate) fn find_traits(types: &mut [TypeDef]) {
    let edges = edges(types, |def| def.kind.items());
    let mut sizes = vec![usize::MAX; types.len()];
    for (number, circle) in circles(&edges).into_iter().enumerate() {
        let is_recursive = match &*circle {
            [id] => holds(&edges, *id, *id),
            _ => true,
        };
        let members: Vec<&TypeDef> = circle.iter().filter_map(|id| types.get(*id)).collect();
        // A type's own traits are not known yet: within a circle they say no more than the other members'.
        let has_float = members.iter().flat_map(|def| def.kind.items()).any(|item| match item.base {
            Base::Float | Base::Double => true,
            Base::Type(id) => types.get(id).is_some_and(|def| def.traits.has_float),
            _ => false,
        });
        let has_eligible = members.iter().flat_map(|def| def.kind.items()).any(|item| match item.base {
            Base::Type(id) => types.get(id).is_some_and(|def| def.traits.has_eligible),
            _ => item.mark.eligible != Eligible::No,
        });
        let is_copy = !is_recursive
            && members.iter().flat_map(|def| def.kind.items()).all(|item| {
                let of_base = match item.base {
                    Base::External(_) | Base::String => false,
                    Base::Opaque => matches!(item.shape, Shape::Fixed(_)),
                    Base::Type(id) => types.get(id).is_some_and(|def| def.traits.is_copy),
                    _ => true,
                };
                of_base && matches!(item.shape, Shape::One | Shape::Fixed(_) | Shape::Optional)
            });
        for id in circle {
            let Some(def) = types.get_mut(id) else { continue };
            let size = if is_recursive { usize::MAX } else { largest(&def.kind, &sizes) };
            if let Some(place) = sizes.get_mut(id) {
                *place = size;
            }
            let has_end = size != usize::MAX;
            def.traits = Traits { is_copy, has_float, has_eligible, has_end, circle: number, is_recursive };
        }
    }
}

/// Returns the size of the largest value, in bytes on the wire; `usize::MAX` if there is none. `rpcrdma` computes the same
/// from the type in Rust. A type of elsewhere counts as a word.
fn largest(kind: &Kind, sizes: &[usize]) -> usize {
    let of_item = |item: &Item| largest_item(item, sizes);
    match kind {
        Kind::Enum(_) => 4,
        Kind::Alias(item) => of_item(item),
        Kind::Maybe(item) => of_item(item).saturating_add(4),
        Kind::Struct(items) => items.iter().map(of_item).fold(0, usize::saturating_add),
        Kind::Union(_) => kind.items().into_iter().map(of_item).max().unwrap_or(0).saturating_add(4),
    }
}

fn largest_item(item: &Item, sizes: &[usize]) -> usize {
    let one = match &item.base {
        Base::Int | Base::Unsigned | Base::Float | Base::Bool | Base::External(_) => 4,
        Base::Hyper | Base::UnsignedHyper | Base::Double => 8,
        Base::Opaque | Base::String => 1,
        Base::Type(id) => sizes.get(*id).copied().unwrap_or(usize::MAX),
    };
    let times = |size: &Size, one: usize| {
        let number = usize::try_from(size.number).unwrap_or(usize::MAX);
        // The pad of opaque data.
        one.saturating_mul(number).checked_next_multiple_of(4).unwrap_or(usize::MAX)
    };
    match &item.shape {
        Shape::One => one,
        Shape::Fixed(size) => times(size, one),
        Shape::Optional => one.saturating_add(4),
        Shape::Counted(None) | Shape::List(None) => usize::MAX,
        Shape::Counted(Some(size)) => times(size, one).saturating_add(4),
        Shape::List(Some(size)) => times(size, one.saturating_add(4)).saturating_add(4),
    }
}

fn edges<'t>(types: &'t [TypeDef], items: impl Fn(&'t TypeDef) -> Vec<&'t Item>) -> Vec<Vec<TypeId>> {
    let targets = |def| {
        let bases = items(def).into_iter().map(|item| &item.base);
        bases.filter_map(|base| if let Base::Type(id) = base { Some(*id) } else { None }).collect()
    };
    types.iter().map(targets).collect()
}

fn holds(edges: &[Vec<TypeId>], from: TypeId, to: TypeId) -> bool {
    edges.get(from).is_some_and(|targets| targets.contains(&to))
}

/// Returns the groups of types that reach one another, each behind those that it reaches (Kosaraju's way).
fn circles(edges: &[Vec<TypeId>]) -> Vec<Vec<TypeId>> {
    let mut back = vec![Vec::new(); edges.len()];
    for (from, targets) in edges.iter().enumerate() {
        for to in targets {
            if let Some(sources) = back.get_mut(*to) {
                sources.push(from);
            }
        }
    }
    let mut seen = vec![false; edges.len()];
    let mut order = Vec::new();
    for start in 0..edges.len() {
        walk(start, &back, &mut seen, &mut order);
    }
    // The last of an order that follows the edges backwards reaches nothing but its own circle.
    let mut seen = vec![false; edges.len()];
    let mut circles = Vec::new();
    for start in order.into_iter().rev() {
        let mut circle = Vec::new();
        walk(start, edges, &mut seen, &mut circle);
        if !circle.is_empty() {
            circles.push(circle);
        }
    }
    circles
}

/// Adds what can be reached from a type and was not seen yet to `order`, each behind what it reaches.
fn walk(start: TypeId, edges: &[Vec<TypeId>], seen: &mut [bool], order: &mut Vec<TypeId>) {
    let mut stack: Vec<(TypeId, usize)> = Vec::new();
    let mut visit = Some(start);
    loop {
        if let Some(id) = visit.take()
            && let Some(seen) = seen.get_mut(id)
            && !std::mem::replace(seen, true)
        {
            stack.push((id, 0));
        }
        let Some((id, next)) = stack.last_mut() else { return };
        match edges.get(*id).and_then(|targets| targets.get(*next)) {
            Some(target) => {
                *next += 1;
                visit = Some(*target);
            }
            None => {
                order.push(*id);
                stack.pop();
            }
        }
    }
}
