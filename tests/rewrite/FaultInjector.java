package rewrite.faults;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.xbean.asm9.ClassReader;
import org.apache.xbean.asm9.ClassVisitor;
import org.apache.xbean.asm9.ClassWriter;
import org.apache.xbean.asm9.Handle;
import org.apache.xbean.asm9.Label;
import org.apache.xbean.asm9.MethodVisitor;
import org.apache.xbean.asm9.Opcodes;
import org.apache.xbean.asm9.Type;

/**
 * Puts a call of `Faults.at` at the beginning of each method of ours that overrides or implements
 * one of Spark's, Scala's or a connector's: within its `try`, if all that it does is in one.
 *
 * <p>Left as they are: methods in which nothing of ours runs, because they only give a constant or a
 * field, or call what is not ours.
 */
public final class FaultInjector {
  private static final String OURS = "rewrite.jvm.";
  private static final String SHIMS = "rewrite.jvm.shims.";
  private static final String OBJECT = "java.lang.Object";

  private final Map classes;
  private final ClassLoader plain;
  private final Set entries = new TreeSet();
  private final Set harmless = new TreeSet();

  /** `classes` has class files by resource name, which `plain` has loaded as they are. */
  public FaultInjector(Map classes, ClassLoader plain) {
    this.classes = classes;
    this.plain = plain;
  }

  /** The methods that now can fail. */
  public List entries() {
    return new ArrayList(entries);
  }

  /** Those in which nothing of ours runs. */
  public List harmless() {
    return new ArrayList(harmless);
  }

  /** Changes the class files in place. */
  public void inject() throws Exception {
    List names = new ArrayList(classes.keySet());
    for (int i = 0; i < names.size(); i++) {
      String resource = (String) names.get(i);
      String name = resource.replace('/', '.').replaceAll("\\.class$", "");
      Class loaded = Class.forName(name, false, plain);
      if (!isOurs(loaded)) continue;
      Set methods = overriding(loaded);
      if (methods.isEmpty()) continue;
      ClassReader reader = new ClassReader((byte[]) classes.get(resource));
      Set pure = new HashSet();
      reader.accept(new Purity(methods, pure), 0);
      String type = name.substring(name.lastIndexOf('.') + 1);
      for (Iterator each = methods.iterator(); each.hasNext(); ) {
        String method = (String) each.next();
        (pure.contains(method) ? harmless : entries).add(entry(type, method));
      }
      methods.removeAll(pure);
      ClassWriter writer = new ClassWriter(ClassWriter.COMPUTE_MAXS);
      reader.accept(new Injection(writer, type, methods), 0);
      classes.put(resource, writer.toByteArray());
    }
  }

  /** A method as the test names it. */
  static String entry(String type, String method) {
    return type + "." + method.substring(0, method.indexOf('('));
  }

  /** The methods of a class, with their descriptors, that override one of a type that is not ours;
      of Object only where the class has another such type. */
  private static Set overriding(Class type) {
    Set theirs = new LinkedHashSet();
    addTypes(type, theirs);
    Set out = new TreeSet();
    boolean isTheirs = false;
    for (Iterator each = theirs.iterator(); each.hasNext(); ) {
      isTheirs |= !((Class) each.next()).getName().startsWith("java.");
    }
    if (!isTheirs) return out;
    Method[] own = type.getDeclaredMethods();
    for (int i = 0; i < own.length; i++) {
      int modifiers = own[i].getModifiers();
      boolean isBridge = own[i].isBridge();
      if (Modifier.isStatic(modifiers) || Modifier.isPrivate(modifiers)) continue;
      if (own[i].isSynthetic() && !isBridge) continue;
      for (Iterator each = theirs.iterator(); each.hasNext(); ) {
        if (!declares((Class) each.next(), own[i])) continue;
        Method real = isBridge ? behind(own[i], own) : own[i];
        if (real != null) out.add(real.getName() + Type.getMethodDescriptor(real));
      }
    }
    return out;
  }

  /** Return the method that javac's bridge calls: the one with the types in place of variables. */
  private static Method behind(Method bridge, Method[] own) {
    Class[] types = bridge.getParameterTypes();
    for (int i = 0; i < own.length; i++) {
      Class[] narrow = own[i].getParameterTypes();
      boolean fits =
          !own[i].isBridge() && own[i].getName().equals(bridge.getName())
              && narrow.length == types.length;
      for (int j = 0; fits && j < types.length; j++) fits = types[j].isAssignableFrom(narrow[j]);
      if (fits) return own[i];
    }
    return null;
  }

  /** Shims only stand between Spark and our classes. */
  private static boolean isOurs(Class type) {
    return type.getName().startsWith(OURS) && !type.getName().startsWith(SHIMS);
  }

  private static void addTypes(Class type, Set theirs) {
    if (type == null) return;
    boolean isJava = type.getName().startsWith("java.") && !type.getName().equals(OBJECT);
    if (!isOurs(type) && !isJava) theirs.add(type);
    addTypes(type.getSuperclass(), theirs);
    Class[] interfaces = type.getInterfaces();
    for (int i = 0; i < interfaces.length; i++) addTypes(interfaces[i], theirs);
  }

  private static boolean declares(Class type, Method method) {
    Method[] theirs = type.getDeclaredMethods();
    for (int i = 0; i < theirs.length; i++) {
      if (theirs[i].getName().equals(method.getName())
          && Arrays.equals(theirs[i].getParameterTypes(), method.getParameterTypes())
          && !Modifier.isStatic(theirs[i].getModifiers())
          && !Modifier.isPrivate(theirs[i].getModifiers())) {
        return true;
      }
    }
    return false;
  }

  /** Finds methods in which nothing of ours runs. */
  private static final class Purity extends ClassVisitor {
    private final Set methods;
    private final Set pure;

    Purity(Set methods, Set pure) {
      super(Opcodes.ASM9);
      this.methods = methods;
      this.pure = pure;
    }

    public MethodVisitor visitMethod(
        int access, String name, String descriptor, String signature, String[] exceptions) {
      final String method = name + descriptor;
      if (!methods.contains(method)) return null;
      pure.add(method);
      final Set found = pure;
      return new MethodVisitor(Opcodes.ASM9) {
        public void visitMethodInsn(
            int opcode, String owner, String name, String descriptor, boolean isInterface) {
          // A function that Java calls may be a lambda of ours.
          boolean isOurs =
              owner.startsWith("rewrite/jvm/") || owner.startsWith("java/util/function/");
          if (isOurs) found.remove(method);
        }

        public void visitTypeInsn(int opcode, String type) {
          if (opcode == Opcodes.NEW) found.remove(method);
        }

        public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
          if (opcode == Opcodes.PUTSTATIC) found.remove(method);
        }

        public void visitJumpInsn(int opcode, Label label) {
          found.remove(method);
        }

        public void visitInvokeDynamicInsn(
            String name, String descriptor, Handle bootstrap, Object[] arguments) {
          found.remove(method);
        }
      };
    }
  }

  /** Adds the calls. */
  private static final class Injection extends ClassVisitor {
    private final String type;
    private final Set methods;

    Injection(ClassWriter out, String type, Set methods) {
      super(Opcodes.ASM9, out);
      this.type = type;
      this.methods = methods;
    }

    public MethodVisitor visitMethod(
        int access, String name, String descriptor, String signature, String[] exceptions) {
      MethodVisitor out =
          super.visitMethod(access, name, descriptor, signature, exceptions);
      return methods.contains(name + descriptor)
          ? new Beginning(out, entry(type, name + descriptor))
          : out;
    }
  }

  /** Adds the call before the first instruction: within the `try` that begins there, if one does. */
  private static final class Beginning extends MethodVisitor {
    private final String entry;
    private final Set tries = new HashSet();
    private boolean isDone;

    Beginning(MethodVisitor out, String entry) {
      super(Opcodes.ASM9, out);
      this.entry = entry;
    }

    private void add() {
      if (isDone) return;
      isDone = true;
      super.visitLdcInsn(entry);
      super.visitMethodInsn(
          Opcodes.INVOKESTATIC, "rewrite/faults/Faults", "at", "(Ljava/lang/String;)V", false);
    }

    public void visitTryCatchBlock(Label start, Label end, Label handler, String caught) {
      super.visitTryCatchBlock(start, end, handler, caught);
      tries.add(start);
    }

    public void visitLabel(Label label) {
      super.visitLabel(label);
      if (tries.contains(label)) add();
    }

    public void visitInsn(int opcode) {
      add();
      super.visitInsn(opcode);
    }

    public void visitIntInsn(int opcode, int operand) {
      add();
      super.visitIntInsn(opcode, operand);
    }

    public void visitVarInsn(int opcode, int local) {
      add();
      super.visitVarInsn(opcode, local);
    }

    public void visitTypeInsn(int opcode, String type) {
      add();
      super.visitTypeInsn(opcode, type);
    }

    public void visitFieldInsn(int opcode, String owner, String name, String descriptor) {
      add();
      super.visitFieldInsn(opcode, owner, name, descriptor);
    }

    public void visitMethodInsn(
        int opcode, String owner, String name, String descriptor, boolean isInterface) {
      add();
      super.visitMethodInsn(opcode, owner, name, descriptor, isInterface);
    }

    public void visitJumpInsn(int opcode, Label label) {
      add();
      super.visitJumpInsn(opcode, label);
    }

    public void visitLdcInsn(Object value) {
      add();
      super.visitLdcInsn(value);
    }
  }
}
